import { isChangeOf, type RulesetChange } from "../ffi/nft/ruleset_monitor.ts";
import * as uapi from "../ffi/nft/uapi.ts";
import { KUBE_PROXY_TABLE } from "../plugins/lib/ruleset/foreign_tables.ts";
import { findModel, pluginNames } from "../plugins/registry.ts";
import { TABLES } from "../plugins/lib/ruleset/repair.ts";

const REMOVALS: readonly number[] = [
  uapi.NFT_MSG_DELTABLE,
  uapi.NFT_MSG_DELCHAIN,
  uapi.NFT_MSG_DELRULE,
  uapi.NFT_MSG_DELSET,
  uapi.NFT_MSG_DELSETELEM,
];

/** Base chains of other programs call chains of ours at these hooks. */
const HOOKS: readonly number[] = [uapi.NF_INET_FORWARD, uapi.NF_INET_LOCAL_IN];

/** Whether attachments may lack something after another program's change. @param foreignChains of {@linkcode listForeignChains} */
export function mayBeLoss(change: RulesetChange, foreignChains: readonly string[]): boolean {
  const { operation } = change;
  if (isInOurTable(change)) return REMOVALS.includes(operation);
  // A new policy may drop what only our rules let through.
  if (operation === uapi.NFT_MSG_NEWCHAIN || operation === uapi.NFT_MSG_DELCHAIN) {
    const { hook, name, table } = change;
    // It writes its base chains with each sync, and no plugin puts anything into them.
    if (table === KUBE_PROXY_TABLE) return false;
    return (hook !== undefined && HOOKS.includes(hook)) || foreignChains.includes(name);
  }
  // A change mentions the chain of its rule too.
  return operation === uapi.NFT_MSG_DELRULE && foreignChains.some((chain) => change.mentions(chain));
}

export const isInOurTable = isChangeOf(TABLES);

/** Our chains in tables of other programs. Call it with all plugins loaded. */
export function listForeignChains(): readonly string[] {
  return pluginNames().flatMap((name) => findModel(name)?.foreignChains ?? []);
}
