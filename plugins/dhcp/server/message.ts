/** DHCP's messages. @see RFC 2131 §2 @module */
import { type Ip, ipBytes, ipFromBytes, type Mac, macBytes, macFromBytes } from "../../../ffi/address.ts";
import { findOption, OPTION, type RawOptions, UNSPECIFIED } from "./options.ts";

export const MESSAGE_TYPE = { discover: 1, offer: 2, request: 3, decline: 4, ack: 5, nak: 6, release: 7 } as const;
export type MessageType = keyof typeof MESSAGE_TYPE;

export const SERVER_PORT = 67;
export const CLIENT_PORT = 68;
/** Where the transaction's number stands in a message. */
export const XID_OFFSET = 4;

const [BOOTREQUEST, BOOTREPLY] = [1, 2];
const ETHERNET = 1;
const BROADCAST_FLAG = 0x8000;
const OPTIONS_AT = 240;
const MAGIC_COOKIE = 0x63825363;
const [SNAME_AT, FILE_AT, COOKIE_AT] = [44, 108, 236];
/** BOOTP relays and servers drop shorter ones (RFC 1542 §2.1). */
const MIN_MESSAGE_BYTES = 300;
const [PAD, END] = [0, 255];
const MAX_OPTION_BYTES = 255;

export interface DhcpRequest {
  readonly type: MessageType;
  readonly xid: number;
  readonly secs: number;
  /** Asks the server to answer by broadcast: the link takes no frames to an address that it has not. */
  readonly broadcast: boolean;
  /** The client's address, if it is usable. */
  readonly ciaddr?: Ip;
  readonly chaddr: Mac;
  /** A value has at most 255 bytes. */
  readonly options: RawOptions;
}

export function encodeRequest(request: DhcpRequest): Uint8Array {
  const options = [...request.options, [OPTION.messageType, Uint8Array.of(MESSAGE_TYPE[request.type])] as const]
    .sort(([a], [b]) => a - b);
  const encoded = options.flatMap(([code, value]) => [code, Math.min(value.length, MAX_OPTION_BYTES), ...value]);
  const bytes = new Uint8Array(Math.max(MIN_MESSAGE_BYTES, OPTIONS_AT + encoded.length + 1));
  const view = new DataView(bytes.buffer);
  bytes.set([BOOTREQUEST, ETHERNET, 6, 0]);
  view.setUint32(XID_OFFSET, request.xid);
  view.setUint16(8, Math.min(request.secs, 0xffff));
  view.setUint16(10, request.broadcast ? BROADCAST_FLAG : 0);
  bytes.set(ipBytes(request.ciaddr ?? UNSPECIFIED), 12);
  bytes.set(macBytes(request.chaddr), 28);
  view.setUint32(COOKIE_AT, MAGIC_COOKIE);
  bytes.set([...encoded, END], OPTIONS_AT);
  return bytes;
}

export interface DhcpReply {
  readonly type: MessageType;
  readonly xid: number;
  readonly yiaddr: Ip;
  readonly chaddr: Mac;
  readonly options: RawOptions;
}

/** `undefined` if it is none to an Ethernet client. */
export function decodeReply(bytes: Uint8Array): DhcpReply | undefined {
  if (bytes.length < OPTIONS_AT) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const isReply = bytes[0] === BOOTREPLY && bytes[1] === ETHERNET && bytes[2] === 6 &&
    view.getUint32(COOKIE_AT) === MAGIC_COOKIE;
  if (!isReply) return undefined;
  const options = readOptions(bytes);
  const code = findOption(options, "messageType");
  const type = (Object.keys(MESSAGE_TYPE) as MessageType[]).find((name) => MESSAGE_TYPE[name] === code);
  if (type === undefined) return undefined;
  return {
    type,
    xid: view.getUint32(XID_OFFSET),
    yiaddr: ipFromBytes(bytes.subarray(16, 20)),
    chaddr: macFromBytes(bytes.subarray(28, 34)),
    options,
  };
}

/** Options continue in the fields for names if the message says so (RFC 2131 §4.1). */
function readOptions(bytes: Uint8Array): RawOptions {
  const options = new Map<number, Uint8Array>();
  addOptions(options, bytes.subarray(OPTIONS_AT));
  const overload = findOption(options, "overload") ?? 0;
  if (overload & 1) addOptions(options, bytes.subarray(FILE_AT, COOKIE_AT));
  if (overload & 2) addOptions(options, bytes.subarray(SNAME_AT, FILE_AT));
  return options;
}

function addOptions(options: Map<number, Uint8Array>, area: Uint8Array): void {
  for (let at = 0; at < area.length && area[at] !== END;) {
    const code = area[at]!;
    if (code === PAD) {
      at++;
      continue;
    }
    const end = at + 2 + (area[at + 1] ?? 0);
    // Cut short: nothing behind it can be read.
    if (at + 2 > area.length || end > area.length) return;
    const earlier = options.get(code) ?? new Uint8Array();
    options.set(code, Uint8Array.of(...earlier, ...area.subarray(at + 2, end)));
    at = end;
  }
}
