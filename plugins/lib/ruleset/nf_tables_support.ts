/**
 * Rules that an attachment may have although its network asks for none by now: the configuration was another one when the ADD was.
 *
 * @module
 */
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import type { Netns } from "../../../ffi/netns.ts";
import { unless } from "../../../ffi/sys/error.ts";

/** What a kernel says that has no nf_tables: the first without netfilter, the second without that part of it. */
const NO_RULES = ["EPROTONOSUPPORT", "EINVAL"];

/**
 * Has rules removed.
 *
 * @param asked whether the network asks for them; if not, a kernel that knows no rules has none of them
 * @throws {NetlinkError}
 */
export function removeRules(host: Pick<Netns, "nft">, asked: boolean, remove: (nl: Netlink) => unknown): void {
  unless(asked ? [] : NO_RULES, () => remove(host.nft));
}
