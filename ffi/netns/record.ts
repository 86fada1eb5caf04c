import type { Netns } from "./netns.ts";

export interface NetnsRecord {
  readonly identity: string;
  readonly cookie?: string | undefined;
}

export function netnsRecordOf({ identity, cookie }: Netns): NetnsRecord {
  return { identity, ...cookie !== undefined && { cookie } };
}

/** Without two cookies, the identity decides. */
export function matchesNetnsRecord(netns: Netns, { identity, cookie }: NetnsRecord): boolean {
  return netns.identity === identity && hasNetnsCookie(netns, cookie) !== false;
}

export function hasNetnsCookie(netns: Netns, cookie: string | undefined): boolean | undefined {
  const netnsCookie = cookie === undefined ? undefined : netns.cookie;
  return netnsCookie === undefined ? undefined : netnsCookie === cookie;
}
