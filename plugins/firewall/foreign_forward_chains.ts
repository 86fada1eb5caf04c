/** Forward chains of other tables. */
import type * as nft from "../../ffi/nft/objects.ts";
import { NF_ACCEPT, NF_INET_FORWARD, NF_IP_PRI_FILTER } from "../../ffi/nft/uapi.ts";
import {
  type BaseChainLister,
  type ForeignBaseChain,
  type ForeignTable,
  IPTABLES_FILTER,
  listForeignHookChains,
} from "../lib/ruleset/foreign_tables.ts";

export interface ForwardChain extends ForeignBaseChain {
  /** iptables may start dropping in it at any time. */
  readonly isIptablesFilter: boolean;
  readonly isMissing: boolean;
}

const FORWARD = "FORWARD";
/** The name in nft(8)'s examples. */
const NATIVE_FORWARD = "forward";

/** Fetched by name: an iptables table may have thousands of chains. */
export const IPTABLES_FORWARD_CHAINS: readonly string[] = [FORWARD, NATIVE_FORWARD];
const FORWARD_HOOK = { number: NF_INET_FORWARD, names: IPTABLES_FORWARD_CHAINS };

/** @param namedChains for an iptables table: `findChains()` of {@linkcode IPTABLES_FORWARD_CHAINS} */
export function listForwardChains(
  listBaseChains: BaseChainLister,
  foreignTable: ForeignTable,
  namedChains: ReadonlyMap<string, nft.Chain> | undefined,
): ForwardChain[] {
  const { table, isIptables } = foreignTable;
  const isFilter = isIptables && table === IPTABLES_FILTER;
  const forwardChains = listForeignHookChains(listBaseChains, foreignTable, FORWARD_HOOK, namedChains).map((base) => ({
    ...base,
    isIptablesFilter: isFilter && base.chain === FORWARD,
    isMissing: false,
  }));
  if (!isFilter || namedChains?.has(FORWARD)) return forwardChains;
  const missing = { dropsByPolicy: false, isIptablesFilter: true, isMissing: true };
  return [...forwardChains, { chain: FORWARD, priority: NF_IP_PRI_FILTER, ...missing }];
}

export function iptablesForwardChain({ family, table }: nft.TableKey, chain: string): nft.ChainIn {
  const hook = { number: NF_INET_FORWARD, priority: NF_IP_PRI_FILTER };
  return { family, table, name: chain, type: "filter", hook, policy: NF_ACCEPT };
}
