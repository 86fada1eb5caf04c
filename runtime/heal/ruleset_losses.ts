import { NFT_MSG_DELSET, type RulesetChange } from "../../ffi/nft/ruleset_monitor.ts";
import * as uapi from "../../ffi/nft/uapi.ts";
import { FORWARD_CHAIN } from "../../plugins/firewall/cni_forward_chain.ts";
import { TABLES } from "../../plugins/lib/ruleset/repair.ts";

const REMOVALS: readonly number[] = [
  ...[uapi.NFT_MSG_DELTABLE, uapi.NFT_MSG_DELCHAIN, uapi.NFT_MSG_DELRULE],
  ...[NFT_MSG_DELSET, uapi.NFT_MSG_DELSETELEM],
];

/** Whether attachments may lack something after another program's change. Asked for each change of the host's ruleset. */
export function mayBeLoss(change: RulesetChange): boolean {
  const { operation, name, hook } = change;
  if (isInOurTable(change)) return REMOVALS.includes(operation);
  // A new policy may drop what only our rules let through.
  if (operation === uapi.NFT_MSG_NEWCHAIN || operation === uapi.NFT_MSG_DELCHAIN) {
    return hook === uapi.NF_INET_FORWARD || name === FORWARD_CHAIN;
  }
  return operation === uapi.NFT_MSG_DELRULE && (name === FORWARD_CHAIN || change.mentions(FORWARD_CHAIN));
}

function isInOurTable({ family, table }: RulesetChange): boolean {
  return TABLES.some((own) => own.table === table && own.family === family);
}
