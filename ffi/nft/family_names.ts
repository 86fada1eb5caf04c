import { NFPROTO_BRIDGE, NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6, NFPROTO_NETDEV } from "./uapi.ts";

export const FAMILY_NAMES: Readonly<Record<number, string>> = {
  [NFPROTO_INET]: "inet",
  [NFPROTO_IPV4]: "ip",
  [NFPROTO_NETDEV]: "netdev",
  [NFPROTO_BRIDGE]: "bridge",
  [NFPROTO_IPV6]: "ip6",
};
