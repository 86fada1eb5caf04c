import type { Ip, Mac } from "../../ffi/address.ts";

/** The first packet of a connection, or the first answer to it. */
export interface WalkedPacket {
  readonly iifname: string;
  readonly oifname: string;
  readonly source: Ip;
  readonly destination: Ip;
  /** `undefined` if chains that ran before may have set it. */
  readonly mark: number | undefined;
  /** `IPPROTO_TCP` */
  readonly protocol: number;
  readonly destinationPort: number;
  /** Absent for other protocols than ICMP and ICMPv6. */
  readonly icmpType?: number;
  readonly isReply?: boolean;
  /** Whether conntrack has not seen it yet: for `ct state` of nft it is invalid. */
  readonly isUntracked?: boolean;
  readonly isDnat: boolean;
  /** The bridge's name, for a frame on a bridge. */
  readonly bridge?: string;
  /** Known for some frames only. */
  readonly sourceMac?: Mac;
  /** A request for the destination's hardware address instead. */
  readonly isArp?: boolean;
  readonly isToHost?: boolean;
}
