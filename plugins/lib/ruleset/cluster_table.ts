import type { TableKey } from "../../../ffi/nft/objects.ts";
import { NFPROTO_INET } from "../../../ffi/nft/uapi.ts";

/** The table of the network between nodes. Its rules are in `cluster/network/`. */
export const CLUSTER_TABLE: TableKey = { family: NFPROTO_INET, table: "cni_cluster" };
