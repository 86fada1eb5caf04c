import type { TableKey } from "../../../ffi/nft/objects.ts";
import { NFPROTO_INET } from "../../../ffi/nft/uapi.ts";

/** The table of NetworkPolicy, whose rules are in `policy_tables.ts`. */
export const POLICY_TABLE: TableKey = { family: NFPROTO_INET, table: "cni_policy" };
