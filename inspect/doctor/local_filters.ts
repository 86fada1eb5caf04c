/** Rules for what a namespace itself sends or receives. */
import { familyOf } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6 } from "../../ffi/nft/uapi.ts";
import { broken, type Finding, type Remedy } from "./finding.ts";
import { listForeignBaseChains } from "./foreign_chains.ts";
import { acceptCommand, deleteRuleCommand } from "./nft_command.ts";
import { findDrop, RulesetReader } from "./packet_walk.ts";
import { describeRulePlace } from "./rule_place_text.ts";
import { shellCommand } from "../../spec/shell_command.ts";
import type { ExaminedContainer } from "./subject.ts";
import type { WalkedPacket } from "./walked_packet.ts";

export interface LocalDrop {
  /** `rule 1 (…) of chain "INPUT" of table "ip filter"` */
  readonly place: string;
  /** Removes the rule, or accepts such packets before a policy drops them. */
  readonly mend: string;
  /** Whether the line removes a rule, which somebody may mean. */
  readonly removesRule: boolean;
}

interface LocalDropOptions {
  /** The path of the namespace; absent for the host's. */
  readonly path?: string;
  /** Whether a chain of this priority sees the packet so. */
  sees?(priority: number): boolean;
}

/** Counts only rules that are certain to match. */
export function findLocalDrop(
  netns: Netns,
  hook: number,
  packet: WalkedPacket,
  { path, sees = () => true }: LocalDropOptions = {},
): LocalDrop | undefined {
  const ruleset = new RulesetReader(netns.nft);
  const protocol = familyOf(packet.source) === 4 ? NFPROTO_IPV4 : NFPROTO_IPV6;
  for (const chain of listForeignBaseChains(netns.nft, [hook])) {
    const table = { family: chain.family, table: chain.table };
    if (chain.type === "nat" || ![NFPROTO_INET, protocol].includes(chain.family)) continue;
    if (!sees(chain.hook?.priority ?? 0)) continue;
    const found = findDrop(ruleset, table, chain, packet);
    if (!found?.isCertain) continue;
    const prefix = path === undefined ? "" : `${shellCommand(["nsenter", `--net=${path}`])} `;
    const where = path === undefined ? "" : ` in ${path}`;
    const key = { ...table, chain: found.chain };
    const mend = found.rule ? deleteRuleCommand(key, found.rule.handle) : acceptCommand(key, packet);
    const place = `${describeRulePlace(table, chain, found)}${where}`;
    return { place, mend: prefix + mend, removesRule: found.rule !== undefined };
  }
  return undefined;
}

export function findContainerDrop(
  { state, attachment }: ExaminedContainer,
  hook: number,
  packet: WalkedPacket,
): LocalDrop | undefined {
  return findLocalDrop(state.netns, hook, packet, { path: attachment.netns });
}

export function stoppedBy(what: string, drop: LocalDrop | undefined, otherwise: Remedy): Finding {
  return drop ? broken(`${what}: stopped by ${drop.place}`, drop.mend) : broken(what, otherwise);
}
