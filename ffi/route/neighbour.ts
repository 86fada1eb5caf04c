import type { Ip, Mac } from "../address.ts";
import {
  bytes,
  type Codec,
  cstr,
  i32,
  ipCodec,
  macCodec,
  Reader,
  struct,
  u16,
  u32,
  u64,
  u8,
} from "../netlink/codec.ts";
import { message, NLM_F_CREATE, NLM_F_REPLACE } from "../netlink/message.ts";
import { dump, executeAll, type Netlink, type NetlinkRequest, query, request } from "../netlink/socket.ts";
import { ignoreErrors } from "../sys/error.ts";
import { addressFamily } from "./address.ts";
import { rtnetlinkOperations } from "./operations.ts";
import * as uapi from "./uapi.ts";

const ndmsg = struct({ family: u8, pad1: u8, pad2: u16, index: i32, state: u16, flags: u8, type: u8 });
export const neighbourMessage = message("neighbour", ndmsg, () => ({
  dst: [uapi.NDA_DST, ipCodec],
  mac: [uapi.NDA_LLADDR, macCodec],
  /** In queries: the link whose neighbours are asked for. */
  link: [uapi.NDA_IFINDEX, u32],
}));
const NEIGHBOUR = /* @__PURE__ */ rtnetlinkOperations("NEIGH", uapi.RTM_NEWNEIGH, neighbourMessage);

export interface Neighbour {
  readonly address: Ip;
  readonly index: number;
  readonly state: number;
  /** Absent until the neighbour has answered. */
  readonly mac?: Mac;
}

export function list(nl: Netlink, family: number, link?: number): Neighbour[] {
  return dump(nl, NEIGHBOUR.GET, { family, link }).flatMap(({ dst, mac, index, state }) =>
    dst === undefined || (link !== undefined && index !== link)
      ? []
      : [{ address: dst, index, state, ...mac !== undefined && { mac } }]
  );
}

/** Nobody is asked for its hardware address, now or later. */
export function permanentRequest(index: number, address: Ip, mac: Mac): NetlinkRequest {
  const value = { family: addressFamily(address), index, state: uapi.NUD_PERMANENT, dst: address, mac };
  return request(NEIGHBOUR.NEW, value, NLM_F_CREATE | NLM_F_REPLACE);
}

export function removeRequest(index: number, address: Ip): NetlinkRequest {
  return request(NEIGHBOUR.DEL, { family: addressFamily(address), index, dst: address });
}

export function find(nl: Netlink, index: number, address: Ip): Neighbour | undefined {
  const family = addressFamily(address);
  const found = ignoreErrors(["ENOENT"], () => query(nl, NEIGHBOUR.GET, { family, index, dst: address }));
  return found && { address, index, state: found.state, ...found.mac !== undefined && { mac: found.mac } };
}

/** The kernel asks again with the next packet. */
export function remove(nl: Netlink, index: number, address: Ip): void {
  executeAll(nl, [removeRequest(index, address)]);
}

const ndtmsg = struct({ family: u8, pad1: u8, pad2: u16 });
const tableMessage = message("neighbour table", ndtmsg, () => ({
  name: [uapi.NDTA_NAME, cstr],
  thresh3: [uapi.NDTA_THRESH3, u32],
  config: [uapi.NDTA_CONFIG, bytes],
  stats: [uapi.NDTA_STATS, bytes],
}));
const TABLE = /* @__PURE__ */ rtnetlinkOperations("NEIGHTBL", uapi.RTM_NEWNEIGHTBL, tableMessage);

/** All network namespaces share one table. */
export interface NeighbourTableUse {
  readonly entries: number;
  /** `gc_thresh3`: beyond it, the kernel refuses new entries. Some entries do not count. */
  readonly limit: number;
  /** Counts since the host started. */
  readonly refused: bigint;
}

export function findTableUse(nl: Netlink, family: number): NeighbourTableUse | undefined {
  // Each link has a part of its own, without these.
  const table = dump(nl, TABLE.GET, { family }).find(({ thresh3 }) => thresh3 !== undefined);
  const { thresh3: limit, config, stats } = table ?? {};
  if (limit === undefined || !config || !stats) return undefined;
  return { entries: readAt(config, 4, u32), limit, refused: readAt(stats, TABLE_FULLS_OFFSET, u64) };
}

/** struct ndt_stats has ten other numbers before it. struct ndt_config { u16 key_len; u16 entry_size; u32 entries; … } */
const TABLE_FULLS_OFFSET = 80;

function readAt<T>(struct: Uint8Array, offset: number, codec: Codec<T>): T {
  return codec.read(new Reader(struct, offset, struct.length));
}
