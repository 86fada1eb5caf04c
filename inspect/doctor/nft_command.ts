/** Commands of nft(8) for people to paste. */
import { FAMILY_NAMES } from "../../ffi/nft/family_names.ts";
import type { TableKey } from "../../ffi/nft/objects.ts";
import { FORWARD_MARK } from "../../plugins/lib/ruleset/forward_mark.ts";
import { NFPROTO_INET, NFPROTO_IPV4 } from "../../ffi/nft/uapi.ts";
import { IPPROTO_ICMP, IPPROTO_ICMPV6 } from "../../ffi/sys/uapi.ts";
import { PROTOCOLS } from "../../spec/port_mapping.ts";
import type { WalkedPacket } from "./walked_packet.ts";
import { shellCommand } from "../../spec/shell_command.ts";

interface NftChain extends TableKey {
  readonly chain: string;
}

/** Names that nft(8) reads in its own language. iptables accepts others, such as `a;b`. */
const IDENTIFIER = /^[A-Za-z_.][\w./-]*$/;

export function deleteRuleCommand(chain: NftChain, handle: bigint): string {
  return ruleCommand("delete", chain, { handle: Number(handle) }, ["handle", `${handle}`]);
}

/** Base chains have names that nft(8) reads: iptables lets nobody choose them. */
export function acceptPolicyCommand({ family, table, chain }: NftChain): string {
  return shellCommand(["nft", "add", "chain", FAMILY_NAMES[family]!, table, chain, "{ policy accept; }"]);
}

/** The mark is on what containers send, on answers, and on calls of published ports. */
export function acceptMarkedCommand(chain: NftChain): string {
  const mark = `0x${FORWARD_MARK.toString(16)}`;
  const match = { op: "==", left: { "&": [{ meta: { key: "mark" } }, FORWARD_MARK] }, right: FORWARD_MARK };
  const words = ["meta", "mark", "and", mark, "==", mark, "accept"];
  return ruleCommand("insert", chain, { expr: [{ match }, { accept: null }] }, words);
}

const PROTOCOL_NAMES: Readonly<Record<number, string>> = {
  [IPPROTO_ICMP]: "icmp",
  [IPPROTO_ICMPV6]: "ipv6-icmp",
  [PROTOCOLS.tcp]: "tcp",
  [PROTOCOLS.udp]: "udp",
  [PROTOCOLS.sctp]: "sctp",
};

type AcceptedPacket = Pick<WalkedPacket, "protocol" | "destinationPort" | "isReply">;

/** Accepts all answers, or all packets of this protocol to this port. In tables of iptables, its own command keeps them readable for it. */
export function acceptCommand(names: NftChain, packet: AcceptedPacket): string {
  const { table, chain } = names;
  if (packet.isReply) return acceptRepliesCommand(names);
  const name = PROTOCOL_NAMES[packet.protocol]!;
  const port = Object.values<number>(PROTOCOLS).includes(packet.protocol) ? packet.destinationPort : undefined;
  const program = iptablesProgram(names);
  if (program !== undefined) {
    const matches = ["-p", name, ...port === undefined ? [] : ["--dport", `${port}`]];
    return shellCommand([program, "-t", table, "-I", chain, ...matches, "-j", "ACCEPT"]);
  }
  const left = port === undefined ? { meta: { key: "l4proto" } } : { payload: { protocol: name, field: "dport" } };
  const expr = [{ match: { op: "==", left, right: port ?? name } }, { accept: null }];
  const match = port === undefined ? ["meta", "l4proto", name] : [name, "dport", `${port}`];
  return ruleCommand("insert", names, { expr }, [...match, "accept"]);
}

function acceptRepliesCommand(names: NftChain): string {
  const program = iptablesProgram(names);
  if (program !== undefined) {
    const match = ["-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED"];
    return shellCommand([program, "-t", names.table, "-I", names.chain, ...match, "-j", "ACCEPT"]);
  }
  const match = { op: "in", left: { ct: { key: "state" } }, right: ["established", "related"] };
  const words = ["ct", "state", "established,related", "accept"];
  return ruleCommand("insert", names, { expr: [{ match }, { accept: null }] }, words);
}

function iptablesProgram({ family, table }: NftChain): string | undefined {
  if (family === NFPROTO_INET || !IPTABLES_TABLES.includes(table)) return undefined;
  return family === NFPROTO_IPV4 ? "iptables-nft" : "ip6tables-nft";
}

const IPTABLES_TABLES = ["filter", "nat", "mangle", "raw", "security"];

/** iptables lets people name a chain by a word of nft(8)'s language, such as `fwd`. */
function mayBeKeyword({ table, chain }: NftChain): boolean {
  return IPTABLES_TABLES.includes(table) && /^[a-z]+$/.test(chain);
}

/** In JSON, names may be any text. */
function ruleCommand(verb: string, names: NftChain, fields: object, words: readonly string[]): string {
  const { table, chain } = names;
  const family = FAMILY_NAMES[names.family]!;
  if ([table, chain].every((name) => IDENTIFIER.test(name)) && !mayBeKeyword(names)) {
    return shellCommand(["nft", verb, "rule", family, table, chain, ...words]);
  }
  const document = { nftables: [{ [verb]: { rule: { family, table, chain, ...fields } } }] };
  return shellCommand(["nft", "-j", JSON.stringify(document)]);
}
