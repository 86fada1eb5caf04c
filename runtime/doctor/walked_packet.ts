import type { Ip } from "../../ffi/address.ts";

/** The first packet of a connection, or the first answer to it. */
export interface WalkedPacket {
  readonly iifname: string;
  readonly oifname: string;
  readonly source: Ip;
  readonly destination: Ip;
  readonly mark: number;
  /** IPPROTO_TCP, … */
  readonly protocol: number;
  readonly destinationPort: number;
  /** Of ICMP and ICMPv6. */
  readonly icmpType?: number;
  readonly isReply?: boolean;
  /** Whether its destination was translated. */
  readonly isDnat: boolean;
  /** Whether its destination is an address of the host. */
  readonly isToHost?: boolean;
}
