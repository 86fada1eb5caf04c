/** The host's resolvers, followed when their file changes. @see resolv.conf(5) */
import { type Ip, isIp, parseIp } from "../../../ffi/address.ts";
import { ignoreSystemErrors } from "../../../ffi/sys/error.ts";
import { readText } from "../../../ffi/sys/file.ts";
import type { SocketEndpoint } from "../../../ffi/sys/inet_socket.ts";
import { findStat } from "../../../ffi/sys/stat.ts";
import { DNS_PORT } from "../protocol.ts";

/** The C library uses three; a few more do no harm. */
const MAX_RESOLVERS = 6;

export interface Resolvers {
  /** In the file's order. The same list, unless the file has changed. */
  list(): readonly SocketEndpoint[];
}

type FindLink = (name: string) => number | undefined;

/** @param findLink gives the index of a link, for link-local addresses */
export function followResolvers(path: string, findLink: FindLink): Resolvers {
  let stamp: string | undefined;
  let resolvers: readonly SocketEndpoint[] = [];
  return {
    list() {
      const stat = ignoreSystemErrors(() => findStat(path));
      const newStamp = stat ? `${stat.identity} ${stat.mtime} ${stat.size}` : "absent";
      if (newStamp === stamp) return resolvers;
      const text = stat ? ignoreSystemErrors(() => readText(path)) : "";
      // Without a free descriptor, the next question tries again.
      if (text === undefined) return resolvers;
      stamp = newStamp;
      resolvers = parseResolvers(text, findLink);
      return resolvers;
    },
  };
}

export function parseResolvers(text: string, findLink: FindLink): SocketEndpoint[] {
  const values = text.split("\n").flatMap((line) => /^nameserver[ \t]+([^\s;#]+)/.exec(line)?.[1] ?? []);
  return values.flatMap((value) => parseEndpoint(value, findLink) ?? []).slice(0, MAX_RESOLVERS);
}

function parseEndpoint(value: string, findLink: FindLink): SocketEndpoint | undefined {
  const [address = "", scope] = value.split("%");
  if (!isIp(address)) return undefined;
  const endpoint = { address: parseIp(address) as Ip, port: DNS_PORT };
  if (scope === undefined) return endpoint;
  const scopeId = /^\d+$/.test(scope) ? Number(scope) : ignoreSystemErrors(() => findLink(scope));
  return scopeId === undefined ? undefined : { ...endpoint, scopeId };
}
