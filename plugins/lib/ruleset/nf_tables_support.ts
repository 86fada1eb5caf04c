/** Rules that an attachment may have although its network asks for none by now: the configuration was another one when the ADD was. */
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import type { Netns } from "../../../ffi/netns.ts";
import { ignoreErrors } from "../../../ffi/sys/error.ts";

/** What a kernel says that has no nf_tables: the first without netfilter, the second without that part of it. */
const NF_TABLES_MISSING_ERRORS = ["EPROTONOSUPPORT", "EINVAL"];

/**
 * Has rules removed.
 *
 * @param isConfigured whether the network asks for them; if not, a kernel that knows no rules has none of them
 * @throws {NetlinkError}
 */
export function removeRulesIfSupported(
  host: Pick<Netns, "nft">,
  isConfigured: boolean,
  removeAll: (nl: Netlink) => unknown,
): void {
  ignoreErrors(isConfigured ? [] : NF_TABLES_MISSING_ERRORS, () => removeAll(host.nft));
}
