/**
 * Tracked connections, over ctnetlink. While its entry exists, a peer that keeps sending reaches a container that is
 * gone.
 *
 * @see linux/netfilter/nfnetlink_conntrack.h
 * @module
 */
import { familyOf, type Ip } from "../address.ts";
import { attrs } from "../netlink/attrs.ts";
import { be16, be32, ipCodec, struct, u32, u8, Writer } from "../netlink/codec.ts";
import { message, type MessageIn, type MessageOut, NLM_F_ACK, type Operation } from "../netlink/message.ts";
import { dumpInPieces } from "../netlink/dump_pieces.ts";
import { dump, MAX_PENDING, type Netlink, queryAllIfPresent, request } from "../netlink/socket.ts";
import { AF_INET, AF_INET6, AF_UNSPEC } from "../sys/uapi.ts";

const NFNL_SUBSYS_CTNETLINK = 1;
const IPCTNL_MSG_CT_NEW = 0;
const IPCTNL_MSG_CT_GET = 1;
const IPCTNL_MSG_CT_DELETE = 2;

const CTA_TUPLE_ORIG = 1;
const CTA_TUPLE_REPLY = 2;
const CTA_MARK = 8;
const CTA_ID = 12;
const CTA_ZONE = 18;
const CTA_MARK_MASK = 21;
const CTA_FILTER = 25;
const CTA_TUPLE_IP = 1;
const CTA_TUPLE_PROTO = 2;
const CTA_IP_V4_SRC = 1;
const CTA_IP_V4_DST = 2;
const CTA_IP_V6_SRC = 3;
const CTA_IP_V6_DST = 4;
const CTA_PROTO_NUM = 1;
const CTA_PROTO_SRC_PORT = 2;
const CTA_PROTO_DST_PORT = 3;
const CTA_PROTO_ICMP_ID = 4;
const CTA_PROTO_ICMP_TYPE = 5;
const CTA_PROTO_ICMP_CODE = 6;
const CTA_PROTO_ICMPV6_ID = 7;
const CTA_PROTO_ICMPV6_TYPE = 8;
const CTA_PROTO_ICMPV6_CODE = 9;
const CTA_FILTER_ORIG_FLAGS = 1;
const CTA_FILTER_REPLY_FLAGS = 2;

// What a dump compares (include/net/netfilter/nf_conntrack_netlink, since Linux 5.8).
const CTA_FILTER_F_CTA_IP_SRC = 1;
const CTA_FILTER_F_CTA_IP_DST = 2;
const CTA_FILTER_F_CTA_PROTO_NUM = 8;
const CTA_FILTER_F_CTA_PROTO_DST_PORT = 32;

const nfgenmsg = struct({ family: u8, version: u8, resource: be16 });
const ipAttrs = attrs(() => ({
  source4: [CTA_IP_V4_SRC, ipCodec],
  destination4: [CTA_IP_V4_DST, ipCodec],
  source6: [CTA_IP_V6_SRC, ipCodec],
  destination6: [CTA_IP_V6_DST, ipCodec],
}));
const tupleAttrs = attrs(() => ({
  ip: [CTA_TUPLE_IP, ipAttrs],
  protocol: [
    CTA_TUPLE_PROTO,
    attrs(() => ({
      number: [CTA_PROTO_NUM, u8],
      sourcePort: [CTA_PROTO_SRC_PORT, be16],
      destinationPort: [CTA_PROTO_DST_PORT, be16],
      // They have no ports, and the kernel finds none without all of these.
      icmpId: [CTA_PROTO_ICMP_ID, be16],
      icmpType: [CTA_PROTO_ICMP_TYPE, u8],
      icmpCode: [CTA_PROTO_ICMP_CODE, u8],
      icmpv6Id: [CTA_PROTO_ICMPV6_ID, be16],
      icmpv6Type: [CTA_PROTO_ICMPV6_TYPE, u8],
      icmpv6Code: [CTA_PROTO_ICMPV6_CODE, u8],
    })),
  ],
}));
const flowMessage = message("flow", nfgenmsg, () => ({
  original: [CTA_TUPLE_ORIG, tupleAttrs],
  reply: [CTA_TUPLE_REPLY, tupleAttrs],
  mark: [CTA_MARK, be32],
  /** Bits of the mark that change. */
  markMask: [CTA_MARK_MASK, be32],
  id: [CTA_ID, be32],
  zone: [CTA_ZONE, be16],
  filter: [
    CTA_FILTER,
    attrs(() => ({ original: [CTA_FILTER_ORIG_FLAGS, u32], reply: [CTA_FILTER_REPLY_FLAGS, u32] })),
  ],
}));
type FlowOp = Operation<typeof flowMessage>;
const ctOperation = (name: string, type: number): FlowOp => ({
  name: `IPCTNL_MSG_CT_${name}`,
  type: NFNL_SUBSYS_CTNETLINK << 8 | type,
  spec: flowMessage,
});
const GET = ctOperation("GET", IPCTNL_MSG_CT_GET);
// Without NLM_F_CREATE, it changes an entry.
const CHANGE = ctOperation("NEW", IPCTNL_MSG_CT_NEW);
const DELETE = ctOperation("DELETE", IPCTNL_MSG_CT_DELETE);

export interface Flow {
  readonly protocol: number;
  readonly source: Ip;
  readonly sourcePort: number;
  readonly destination: Ip;
  readonly destinationPort: number;
  readonly replySource: Ip;
  readonly replySourcePort: number;
}

export interface FlowFilter {
  readonly family: 4 | 6;
  readonly protocol: number;
  readonly originalPort?: number;
  readonly originalAddress?: Ip;
  readonly replySource?: Ip;
}

export function listFlows(nl: Netlink, filter: FlowFilter): Flow[] {
  return dumpMatching(nl, filter).map(({ flow }) => flow);
}

/** The next packets are translated anew. @returns how many were deleted */
export function deleteFlows(nl: Netlink, filter: FlowFilter, accepts: (flow: Flow) => boolean = () => true): number {
  const accepted = dumpMatching(nl, filter).filter(({ flow }) => accepts(flow));
  // The id excludes newer connections of these peers.
  const requests = accepted.map(({ raw: { family, original, id, zone } }) =>
    request(DELETE, { family, original, id, zone }, NLM_F_ACK)
  );
  queryAllIfPresent(nl, requests);
  return requests.length;
}

type RawFlow = MessageOut<typeof flowMessage>;

/** With its mark, and what names it to the kernel. */
export interface TrackedFlow extends Flow {
  readonly mark: number;
  readonly raw: object;
}

function trackedFlowOf(raw: RawFlow): TrackedFlow | undefined {
  const flow = flowOf(raw);
  return flow && { ...flow, mark: raw.mark ?? 0, raw };
}

/**
 * Tells all flows, piece by piece: there may be hundreds of thousands. Between two pieces, the caller may do anything,
 * except with this socket. Both families at once, since the kernel walks all buckets for each: 262,144 empty ones take it
 * 9 ms.
 *
 * @param onStart called again if the list must be read again
 * @param isWanted of a flow's bytes; without it, all are
 */
export function* dumpFlowsInPieces(
  nl: Netlink,
  onStart: () => void,
  onFlow: (flow: TrackedFlow) => void,
  isWanted?: (raw: Buffer) => boolean,
): Generator<void> {
  const onItem = (raw: RawFlow) => {
    const flow = trackedFlowOf(raw);
    if (flow) onFlow(flow);
  };
  yield* dumpInPieces(nl, GET, { family: AF_UNSPEC }, onStart, onItem, isWanted);
}

/** For more addresses, decoding each flow is faster. */
export const SEARCHED_ADDRESSES = 16;

/**
 * Deletes the flows that one of these addresses began, or answers. In pieces, as {@linkcode dumpFlowsInPieces}.
 *
 * @param ips may lose some meanwhile, whose flows stay then
 * @param watched loses those of which there is a flow; nothing of them is deleted
 */
export function* deleteFlowsInPieces(
  nl: Netlink,
  ips: ReadonlySet<Ip>,
  watched: Set<Ip> = new Set(),
): Generator<void> {
  const sources = [...ips, ...watched].map(sourceAttribute);
  const isWanted = (raw: Buffer) => sources.some((source) => raw.includes(source));
  let found: TrackedFlow[] = [];
  const isOfThem = ({ source, replySource }: TrackedFlow) => ips.has(source) || ips.has(replySource);
  const onFlow = (flow: TrackedFlow) => {
    if (isOfThem(flow)) found.push(flow);
    watched.delete(flow.source);
    watched.delete(flow.replySource);
  };
  yield* dumpFlowsInPieces(
    nl,
    () => void (found = []),
    onFlow,
    sources.length <= SEARCHED_ADDRESSES ? isWanted : undefined,
  );
  while (found.length > 0) {
    changeEach(nl, DELETE, found.splice(0, MAX_PENDING).filter(isOfThem), {});
    yield;
  }
}

/** As a flow's bytes contain it. */
function sourceAttribute(ip: Ip): Uint8Array {
  const w = new Writer();
  ipAttrs.write(w, familyOf(ip) === 4 ? { source4: ip } : { source6: ip });
  return w.written();
}

export interface FlowMark {
  readonly mark: number;
  /** Bits that change; others stay as they are. */
  readonly mask: number;
}

/** Sets bits of the marks. Flows that have ended meanwhile are passed over. */
export function setFlowMarks(nl: Netlink, flows: readonly TrackedFlow[], bits: FlowMark): void {
  changeEach(nl, CHANGE, flows, { mark: bits.mark, markMask: bits.mask });
}

function changeEach(nl: Netlink, operation: FlowOp, flows: readonly TrackedFlow[], change: object): void {
  const requests = flows.map(({ raw }) => {
    const { family, original, id, zone } = raw as RawFlow;
    return request(operation, { family, original, id, zone, ...change }, NLM_F_ACK);
  });
  queryAllIfPresent(nl, requests);
}

function dumpMatching(nl: Netlink, filter: FlowFilter): { flow: Flow; raw: RawFlow }[] {
  // Kernels before 5.8 do not filter.
  return dump(nl, GET, dumpRequest(filter)).flatMap((raw) => {
    const flow = flowOf(raw);
    return flow && matches(flow, filter) ? [{ flow, raw }] : [];
  });
}

/**
 * Leaves out IPv6 addresses: Linux 5.8 to at least 6.18 compares them the wrong way round.
 *
 * @see net/netfilter/nf_conntrack_netlink.c ctnetlink_filter_match_tuple()
 */
function dumpRequest(filter: FlowFilter): MessageIn<typeof flowMessage> {
  const { family, protocol, originalPort } = filter;
  const { originalAddress, replySource } = family === 4 ? filter : {};
  const original = CTA_FILTER_F_CTA_PROTO_NUM | (originalPort === undefined ? 0 : CTA_FILTER_F_CTA_PROTO_DST_PORT) |
    (originalAddress === undefined ? 0 : CTA_FILTER_F_CTA_IP_DST);
  return {
    family: family === 4 ? AF_INET : AF_INET6,
    original: {
      ip: { destination4: originalAddress },
      protocol: { number: protocol, destinationPort: originalPort },
    },
    reply: replySource && { ip: { source4: replySource } },
    filter: { original, reply: replySource === undefined ? 0 : CTA_FILTER_F_CTA_IP_SRC },
  };
}

function flowOf({ original, reply }: RawFlow): Flow | undefined {
  const source = original?.ip?.source4 ?? original?.ip?.source6;
  const destination = original?.ip?.destination4 ?? original?.ip?.destination6;
  const replySource = reply?.ip?.source4 ?? reply?.ip?.source6;
  if (source === undefined || destination === undefined || replySource === undefined) return undefined;
  return {
    protocol: original?.protocol?.number ?? 0,
    source,
    sourcePort: original?.protocol?.sourcePort ?? 0,
    destination,
    destinationPort: original?.protocol?.destinationPort ?? 0,
    replySource,
    replySourcePort: reply?.protocol?.sourcePort ?? 0,
  };
}

function matches(flow: Flow, { protocol, originalPort, originalAddress, replySource }: FlowFilter): boolean {
  return flow.protocol === protocol && (originalPort === undefined || flow.destinationPort === originalPort) &&
    (originalAddress === undefined || flow.destination === originalAddress) &&
    (replySource === undefined || flow.replySource === replySource);
}
