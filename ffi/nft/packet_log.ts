/** Packets that rules log to a group (`log group 1`), as nfnetlink_log tells them. @see linux/netfilter/nfnetlink_log.h @module */
import { be16, be32, bytes, cstr, struct, u8 } from "../netlink/codec.ts";
import { message, type MessageIn, type Operation, readMessage } from "../netlink/message.ts";
import { execute, forEachMessage, NETLINK_NETFILTER, openNetlink } from "../netlink/socket.ts";
import { ignoreErrors, withPurpose } from "../sys/error.ts";
import { nfgenmsg } from "./objects.ts";
import { NFPROTO_UNSPEC } from "./uapi.ts";

const NFNL_SUBSYS_ULOG = 4;
const NFULNL_MSG_PACKET = 0;
const NFULNL_MSG_CONFIG = 1;
const NFULA_CFG_CMD = 1;
const NFULA_CFG_MODE = 2;
const NFULA_CFG_TIMEOUT = 4;
const NFULNL_CFG_CMD_BIND = 1;
const NFULNL_COPY_PACKET = 2;
const NFULA_PACKET_HDR = 1;
const NFULA_IFINDEX_INDEV = 4;
const NFULA_IFINDEX_PHYSINDEV = 6;
const NFULA_PAYLOAD = 9;
const NFULA_PREFIX = 10;

/** Hundredths of a second in which packets are collected: each message takes room for many. */
const COLLECTED_FOR = 10;
/** Enough for the headers of IPv6 with extensions, and ports. */
const COPIED_BYTES = 128;

const configMessage = message("packet log", nfgenmsg, () => ({
  command: [NFULA_CFG_CMD, struct({ number: u8 })],
  mode: [NFULA_CFG_MODE, struct({ copiedBytes: be32, number: u8, pad1: u8 })],
  collectedFor: [NFULA_CFG_TIMEOUT, be32],
}));
const CONFIG: Operation<typeof configMessage> = {
  name: "NFULNL_MSG_CONFIG",
  type: NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_CONFIG,
  spec: configMessage,
};

const packetMessage = message("packet", nfgenmsg, () => ({
  header: [NFULA_PACKET_HDR, struct({ protocol: be16, hook: u8, pad1: u8 })],
  link: [NFULA_IFINDEX_INDEV, be32],
  port: [NFULA_IFINDEX_PHYSINDEV, be32],
  payload: [NFULA_PAYLOAD, bytes],
  prefix: [NFULA_PREFIX, cstr],
}));

export interface LoggedPacket {
  /** The text of the rule. */
  readonly prefix: string;
  readonly etherType: number;
  /** Index of the link, or of the bridge's port, that it came in by. */
  readonly link: number | undefined;
  /** The beginning, from the network header on. */
  readonly payload: Uint8Array;
}

export interface PacketLog extends Disposable {
  /** Tells what waits. What finds no room is lost. */
  read(onPacket: (packet: LoggedPacket) => void): void;
}

/** Of the thread's network namespace. @throws {NetlinkError} `EPERM` if another process has the group */
export function openPacketLog(group: number): PacketLog {
  using resources = new DisposableStack();
  const nl = resources.use(openNetlink(NETLINK_NETFILTER));
  const config: MessageIn<typeof configMessage> = {
    family: NFPROTO_UNSPEC,
    version: 0,
    resource: group,
    command: { number: NFULNL_CFG_CMD_BIND },
    mode: { copiedBytes: COPIED_BYTES, number: NFULNL_COPY_PACKET },
    collectedFor: COLLECTED_FOR,
  };
  withPurpose(`take group ${group} of nfnetlink_log, which one process can have`, () => execute(nl, CONFIG, config));
  const owned = resources.move();
  return {
    read(onPacket) {
      for (;;) {
        const datagram = ignoreErrors(["ENOBUFS"], () => nl.receive(false));
        if (datagram === undefined) return;
        // A copy: all sockets receive into one buffer.
        forEachMessage(datagram.slice(), ({ type, payload }) => {
          if (type !== (NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET)) return;
          const { prefix = "", header, link, port, payload: packet } = readMessage(packetMessage, payload);
          if (!packet) return;
          onPacket({ prefix, etherType: header?.protocol ?? 0, link: port ?? link, payload: packet });
        });
      }
    },
    [Symbol.dispose]: () => owned.dispose(),
  };
}
