/** Commands of nft(8) for people to paste. */
import { FAMILY_NAMES } from "../../ffi/nft/family_names.ts";
import type { TableKey } from "../../ffi/nft/objects.ts";
import { FORWARD_MARK } from "../../plugins/lib/ruleset/forward_mark.ts";
import { shellCommand } from "./shell_command.ts";

/** A chain of a table. */
interface NftChain extends TableKey {
  readonly chain: string;
}

/** Names that nft(8) reads in its own language. iptables accepts others, such as `a;b`. */
const IDENTIFIER = /^[A-Za-z_.][\w./-]*$/;

export function deleteRuleCommand(chain: NftChain, handle: bigint): string {
  return ruleCommand("delete", chain, { handle: Number(handle) }, ["handle", `${handle}`]);
}

/** The mark is on what containers send, on answers, and on calls of published ports. */
export function acceptMarkedCommand(chain: NftChain): string {
  const mark = `0x${FORWARD_MARK.toString(16)}`;
  const match = { op: "==", left: { "&": [{ meta: { key: "mark" } }, FORWARD_MARK] }, right: FORWARD_MARK };
  return ruleCommand("insert", chain, { expr: [{ match }, { accept: null }] }, [
    ...["meta", "mark", "and", mark, "==", mark, "accept"],
  ]);
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
  return shellCommand([
    ...["nft", "-j"],
    JSON.stringify({ nftables: [{ [verb]: { rule: { family, table, chain, ...fields } } }] }),
  ]);
}
