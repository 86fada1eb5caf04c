import { FAMILY_NAMES } from "../../ffi/nft/family_names.ts";
import type * as nft from "../../ffi/nft/objects.ts";
import type { RulePlace } from "./packet_walk.ts";

/** `rule 1 (drop; handle 5) of chain "USER" of table "ip filter", called from "FORWARD"` */
export function describeRulePlace(table: nft.TableKey, { name }: nft.Chain, { chain, rule }: RulePlace): string {
  const tableName = `table "${FAMILY_NAMES[table.family]} ${table.table}"`;
  const by = rule ? `rule ${rule.number} (${rule.text}; handle ${rule.handle})` : "policy drop";
  return `${by} of chain "${chain}" of ${tableName}${chain === name ? "" : `, called from "${name}"`}`;
}
