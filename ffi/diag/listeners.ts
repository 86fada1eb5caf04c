/**
 * Sockets that wait for clients, over sock_diag: listening TCP and SCTP sockets, and UDP sockets without a peer, except
 * multicast.
 *
 * @see linux/inet_diag.h, linux/sock_diag.h, net/ipv4/inet_diag.c
 * @module
 */
import { type Ip, ipFromBytes, isMulticast } from "../address.ts";
import { be16, be32, bytes, struct, u32, u8 } from "../netlink/codec.ts";
import { message, type MessageOut, type Operation } from "../netlink/message.ts";
import { dump, type Netlink } from "../netlink/socket.ts";
import { AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP } from "../sys/uapi.ts";

const TCPDIAG_GETSOCK = 18;
const SOCK_DIAG_BY_FAMILY = 20;
const INET_DIAG_REQ_BYTECODE = 1;
const INET_DIAG_SKV6ONLY = 11;
const INET_DIAG_BC_S_GE = 2;
const INET_DIAG_BC_S_LE = 3;

// net/tcp_states.h; UDP sockets without a peer have one too.
const TCP_CLOSE = 7;
const TCP_LISTEN = 10;

const inetDiagSockid = {
  sport: be16,
  dport: be16,
  src0: be32,
  src1: be32,
  src2: be32,
  src3: be32,
  dst0: be32,
  dst1: be32,
  dst2: be32,
  dst3: be32,
  iface: u32,
  cookie0: u32,
  cookie1: u32,
};
const requestAttributes = () => ({ bytecode: [INET_DIAG_REQ_BYTECODE, bytes] }) as const;
const inetDiagReqV2 = message(
  "sockets of a family",
  struct({ family: u8, protocol: u8, extensions: u8, pad0: u8, states: u32, ...inetDiagSockid }),
  requestAttributes,
);
const inetDiagReq = message(
  "sockets of TCP",
  struct({ family: u8, srcLen: u8, dstLen: u8, extensions: u8, ...inetDiagSockid, states: u32, pad0: u32 }),
  requestAttributes,
);
const inetDiagMsg = message(
  "socket",
  struct({
    family: u8,
    state: u8,
    timer: u8,
    retrans: u8,
    ...inetDiagSockid,
    expires: u32,
    rqueue: u32,
    wqueue: u32,
    uid: u32,
    inode: u32,
  }),
  () => ({ v6Only: [INET_DIAG_SKV6ONLY, u8] }),
);
const GET_BY_FAMILY: Operation<typeof inetDiagReqV2> = {
  name: "SOCK_DIAG_BY_FAMILY",
  type: SOCK_DIAG_BY_FAMILY,
  spec: inetDiagReqV2,
};
const GET_TCP: Operation<typeof inetDiagReq> = { name: "TCPDIAG_GETSOCK", type: TCPDIAG_GETSOCK, spec: inetDiagReq };

export interface Listener {
  /** The unspecified address (0.0.0.0, ::) is any of the host's. */
  readonly address: Ip;
  readonly port: number;
  readonly v6Only: boolean;
  readonly uid: number;
  /** As /proc/PID/fd shows it: `socket:[inode]`. */
  readonly inode: number;
}

/**
 * @param protocol IPPROTO_TCP, IPPROTO_UDP, …
 * @throws {NetlinkError} `ENOENT` if the kernel cannot list the protocol's sockets
 */
export function listListeners(nl: Netlink, protocol: number, firstPort: number, lastPort: number): Listener[] {
  const states = 1 << (protocol === IPPROTO_UDP ? TCP_CLOSE : TCP_LISTEN);
  const bytecode = portRangeBytecode(firstPort, lastPort);
  // The old request lists both families at once; each request walks up to 64,000 buckets.
  const sockets: readonly unknown[] = protocol === IPPROTO_TCP
    ? dump(nl, GET_TCP, { family: AF_INET, states, bytecode }, inetDiagMsg)
    : [AF_INET, AF_INET6].flatMap((family) =>
      dump(nl, GET_BY_FAMILY, { family, protocol, states, bytecode }, inetDiagMsg)
    );
  // Not all protocols run the bytecode.
  return (sockets as readonly DiagSocket[]).map(listenerOf).filter(({ address, port }) =>
    port >= firstPort && port <= lastPort && !isMulticast(address)
  );
}

type DiagSocket = MessageOut<typeof inetDiagMsg>;

/**
 * struct inet_diag_bc_op { u8 code, yes; u16 no; } twice per comparison, the port in the second one's `no`. `yes` and
 * `no` jump by bytes; four past the end refuses the socket.
 */
function portRangeBytecode(firstPort: number, lastPort: number): Uint8Array {
  const OP_PAIR_BYTES = 8;
  const program = new DataView(new ArrayBuffer(2 * OP_PAIR_BYTES));
  [[INET_DIAG_BC_S_GE, firstPort], [INET_DIAG_BC_S_LE, lastPort]].forEach(([code, port], i) => {
    const at = i * OP_PAIR_BYTES;
    program.setUint8(at, code!);
    program.setUint8(at + 1, OP_PAIR_BYTES);
    program.setUint16(at + 2, 2 * OP_PAIR_BYTES - at + 4, true);
    program.setUint16(at + 6, port!, true);
  });
  return new Uint8Array(program.buffer);
}

function listenerOf(socket: DiagSocket): Listener {
  const { family, src0, src1, src2, src3, sport, v6Only, uid, inode } = socket;
  const address = new DataView(new ArrayBuffer(16));
  [src0, src1, src2, src3].forEach((word, i) => address.setUint32(4 * i, word));
  return {
    address: ipFromBytes(new Uint8Array(address.buffer, 0, family === AF_INET ? 4 : 16)),
    port: sport,
    v6Only: v6Only === 1,
    uid,
    inode,
  };
}
