import type { Netns } from "./netns.ts";

/** Identifies a namespace in files: {@linkcode Netns.identity}, and {@linkcode Netns.cookie} where there is one. */
export interface NetnsRecord {
  readonly identity: string;
  readonly cookie?: string | undefined;
}

export function netnsRecordOf({ identity, cookie }: Netns): NetnsRecord {
  return { identity, ...cookie !== undefined && { cookie } };
}

/** Whether this is the recorded namespace. Unless both have a cookie, the identity decides. */
export function matchesNetnsRecord(netns: Netns, { identity, cookie }: NetnsRecord): boolean {
  return netns.identity === identity && hasNetnsCookie(netns, cookie) !== false;
}

/** Whether the namespace has this cookie; `undefined` if either has none. */
export function hasNetnsCookie(netns: Netns, cookie: string | undefined): boolean | undefined {
  const netnsCookie = cookie === undefined ? undefined : netns.cookie;
  return netnsCookie === undefined ? undefined : netnsCookie === cookie;
}
