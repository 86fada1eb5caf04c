/** What is written down of a network namespace, to know it again. @module */
import type { Netns } from "./netns.ts";

/** What is written down of a namespace, to know it again: {@linkcode Netns.identity}, and {@linkcode Netns.cookie} where there is one. */
export interface NetnsRecord {
  readonly identity: string;
  readonly cookie?: string | undefined;
}

/** What there is to write down of a namespace. @throws {SystemError} */
export function netnsRecordOf({ identity, cookie }: Netns): NetnsRecord {
  return { identity, ...cookie !== undefined && { cookie } };
}

/** Whether this is the namespace that was written down. Without a cookie on both sides, the file's number is all there is to go by. */
export function matchesNetnsRecord(netns: Netns, { identity, cookie }: NetnsRecord): boolean {
  return netns.identity === identity && hasNetnsCookie(netns, cookie) !== false;
}

/** Whether the cookie is that of this namespace; `undefined` if there is none, or the kernel gives none. @throws {SystemError} */
export function hasNetnsCookie(netns: Netns, cookie: string | undefined): boolean | undefined {
  const netnsCookie = cookie === undefined ? undefined : netns.cookie;
  return netnsCookie === undefined ? undefined : netnsCookie === cookie;
}
