import { NFT_MSG_DELSET, type RulesetChange } from "../ffi/nft/ruleset_monitor.ts";
import * as uapi from "../ffi/nft/uapi.ts";
import { INPUT_ACCEPT_CHAIN } from "../plugins/dnsname/input_accept.ts";
import { FORWARD_CHAIN } from "../plugins/firewall/cni_forward_chain.ts";
import { TABLES } from "../plugins/lib/ruleset/repair.ts";

const REMOVALS: readonly number[] = [
  ...[uapi.NFT_MSG_DELTABLE, uapi.NFT_MSG_DELCHAIN, uapi.NFT_MSG_DELRULE],
  ...[NFT_MSG_DELSET, uapi.NFT_MSG_DELSETELEM],
];

/** Ours in tables of other programs, and the hooks of the chains that jump there. */
const CHAINS: readonly string[] = [FORWARD_CHAIN, INPUT_ACCEPT_CHAIN];
const HOOKS: readonly number[] = [uapi.NF_INET_FORWARD, uapi.NF_INET_LOCAL_IN];

/** Whether attachments may lack something after another program's change. Asked for each change of the host's ruleset. */
export function mayBeLoss(change: RulesetChange): boolean {
  const { operation, name, hook } = change;
  if (isInOurTable(change)) return REMOVALS.includes(operation);
  // A new policy may drop what only our rules let through.
  if (operation === uapi.NFT_MSG_NEWCHAIN || operation === uapi.NFT_MSG_DELCHAIN) {
    return (hook !== undefined && HOOKS.includes(hook)) || CHAINS.includes(name);
  }
  return operation === uapi.NFT_MSG_DELRULE && CHAINS.some((chain) => name === chain || change.mentions(chain));
}

export function isInOurTable({ family, table }: RulesetChange): boolean {
  return TABLES.some((own) => own.table === table && own.family === family);
}
