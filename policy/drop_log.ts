/** Dropped packets in the log: between which pods, and why. @module */
import type { Ip } from "../ffi/address.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { type LoggedPacket, openPacketLog, type PacketLog } from "../ffi/nft/packet_log.ts";
import { ignoreSystemErrors } from "../ffi/sys/error.ts";
import { type PacketEnds, readPacketEnds } from "../ffi/packet/ip_header.ts";
import * as link from "../ffi/route/link.ts";
import { IPPROTO_ICMP, IPPROTO_ICMPV6 } from "../ffi/sys/uapi.ts";
import { listAttached } from "../plugins/lib/policy/attached_pods.ts";
import { DROP_LOG_GROUP, loggedReason } from "../plugins/lib/policy/drops.ts";
import type { DropReason } from "../plugins/lib/ruleset/policy_tables.ts";
import { podKey } from "./api/pod.ts";
import { protocolName } from "./api/protocol.ts";
import type { PolicyCompiler } from "./compiler.ts";
import type { LocalPod } from "./local_pod.ts";

/** What `--log-format json` has of a packet. */
export interface LoggedDrop {
  readonly reason: DropReason;
  /** `namespace/name` of the pod whose policies drop it, or that has sent it from an address of others. */
  readonly pod?: string;
  readonly source?: Ip;
  readonly sourcePod?: string;
  readonly destination?: Ip;
  readonly destinationPod?: string;
  readonly protocol: string;
  readonly port?: number;
  /** The link on the host that it came in by. */
  readonly interface?: string;
}

/** The server whose place this one takes has the group until it ends. */
const RETRY_MS = 2000;

export class DropLog implements Disposable {
  readonly #host: Netns;
  readonly #compiler: PolicyCompiler;
  #packets: PacketLog | undefined;
  #nextTry = 0;

  /** @param compiler knows whose addresses they are */
  constructor(host: Netns, compiler: PolicyCompiler) {
    this.#host = host;
    this.#compiler = compiler;
  }

  /** Call it some times a second. @throws {NetlinkError} once in a while, as long as the kernel gives no packets */
  read(onDrop: (drop: LoggedDrop) => void): void {
    this.#packets ??= this.#open();
    this.#packets?.read((packet) => {
      const reason = loggedReason(packet.prefix);
      if (reason !== undefined) onDrop(this.#describe(reason, packet));
    });
  }

  [Symbol.dispose](): void {
    this.#packets?.[Symbol.dispose]();
  }

  #open(): PacketLog | undefined {
    const now = performance.now();
    if (now < this.#nextTry) return undefined;
    const isFirst = this.#nextTry === 0;
    this.#nextTry = now + RETRY_MS;
    return isFirst ? ignoreSystemErrors(() => openPacketLog(DROP_LOG_GROUP)) : openPacketLog(DROP_LOG_GROUP);
  }

  #describe(reason: DropReason, { etherType, payload, link: index }: LoggedPacket): LoggedDrop {
    const ends = readPacketEnds(etherType, payload);
    const [sourcePod, destinationPod] = [ends?.source, ends?.destination].map((ip) => ip && this.#podOf(ip));
    const interfaceName = index === undefined ? undefined : link.find(this.#host.route, index)?.name;
    const pod = this.#judgedPod(reason, ends, interfaceName);
    return {
      reason,
      ...pod !== undefined && { pod },
      ...ends && { source: ends.source },
      ...sourcePod !== undefined && { sourcePod },
      ...ends && { destination: ends.destination },
      ...destinationPod !== undefined && { destinationPod },
      protocol: ends ? shortProtocol(ends) : `ethertype 0x${etherType.toString(16).padStart(4, "0")}`,
      ...ends?.port !== undefined && { port: ends.port },
      ...interfaceName !== undefined && { interface: interfaceName },
    };
  }

  #judgedPod(reason: DropReason, ends: PacketEnds | undefined, interfaceName?: string): string | undefined {
    switch (reason) {
      case "ingress":
        return ends && this.#podOf(ends.destination);
      case "egress":
        return ends && this.#podOf(ends.source);
      case "forged":
      case "bridged": {
        const sender = listAttached(this.#host.nft).find((each) => each.interface === interfaceName);
        return sender && this.#podOf(sender.ip);
      }
      case "closed":
        return this.#localOf(ends, (local) => !this.#compiler.isKnown(local));
      case "cut":
        return this.#localOf(ends, () => true);
    }
  }

  #localOf(ends: PacketEnds | undefined, isMeant: (local: LocalPod) => boolean): string | undefined {
    if (!ends) return undefined;
    const locals = [ends.destination, ends.source].map((ip) => this.#localAt(ip));
    const local = locals.find((each) => each && isMeant(each));
    return local && podKey(local);
  }

  #localAt(ip: Ip): LocalPod | undefined {
    return this.#compiler.locals().values().find(({ ips }) => ips.includes(ip));
  }

  #podOf(ip: Ip): string | undefined {
    const known = this.#localAt(ip) ?? this.#compiler.peers.ownerOf(ip)?.pod;
    return known && podKey(known);
  }
}

function shortProtocol({ protocol }: PacketEnds): string {
  if (protocol === IPPROTO_ICMP) return "icmp";
  return protocol === IPPROTO_ICMPV6 ? "icmpv6" : protocolName(protocol).toLowerCase();
}

const SUBJECTS: Readonly<Record<DropReason, string>> = {
  ingress: "ingress",
  egress: "egress",
  closed: "closed",
  cut: "cut connection",
  forged: "forged source",
  bridged: "bridged frame",
};

/** `Dropped: ingress of pod apps/web, 10.1.0.7 (clients/b) to 10.1.0.2 (apps/web), tcp port 80` */
export function dropText(drop: LoggedDrop): string {
  const { reason, pod, source, sourcePod, destination, destinationPod, protocol, port } = drop;
  const end = (ip: Ip, name: string | undefined) => name === undefined ? ip : `${ip} (${name})`;
  return [
    `Dropped: ${SUBJECTS[reason]}${pod === undefined ? "" : ` of pod ${pod}`}`,
    ...source === undefined ? [] : [`${end(source, sourcePod)} to ${end(destination!, destinationPod)}`],
    port === undefined ? protocol : `${protocol} port ${port}`,
    ...drop.interface === undefined ? [] : [`from ${drop.interface}`],
  ].join(", ");
}
