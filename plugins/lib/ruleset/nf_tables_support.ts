/** Removal of rules that the network no longer asks for: the configuration may have changed since ADD. */
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import type { Netns } from "../../../ffi/netns.ts";
import { ignoreErrors } from "../../../ffi/sys/error.ts";

/** Errors of a kernel without netfilter, and of one without nf_tables. */
const NF_TABLES_MISSING_ERRORS = ["EPROTONOSUPPORT", "EINVAL"];

/** @param isConfigured whether the network asks for rules; if not, a kernel without nf_tables has none to remove */
export function removeRulesIfSupported(
  host: Pick<Netns, "nft">,
  isConfigured: boolean,
  removeAll: (nl: Netlink) => unknown,
): void {
  ignoreErrors(isConfigured ? [] : NF_TABLES_MISSING_ERRORS, () => removeAll(host.nft));
}
