import type { Netlink } from "../../../ffi/netlink/socket.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { ignoreErrors } from "../../../ffi/sys/error.ts";

/** Errors of kernels without netfilter and without nf_tables. */
const NF_TABLES_MISSING_ERRORS = ["EPROTONOSUPPORT", "EINVAL"];

/**
 * Also removes rules that the network no longer asks for.
 *
 * @param isConfigured if false, a kernel without nf_tables has nothing to remove
 */
export function removeRulesIfSupported(
  host: Pick<Netns, "nft">,
  isConfigured: boolean,
  removeAll: (nl: Netlink) => unknown,
): void {
  ignoreErrors(isConfigured ? [] : NF_TABLES_MISSING_ERRORS, () => removeAll(host.nft));
}
