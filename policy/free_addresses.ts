/** Which addresses are sure to have no tracked flows when a pod gets them: it need not wait for a walk. @module */
import { broadcastOf, type Cidr, containsIp, familyOf, type Ip } from "../ffi/address.ts";
import { dumpFlowsInPieces } from "../ffi/conntrack/conntrack.ts";
import { NETLINK_NETFILTER, openNetlink } from "../ffi/netlink/socket.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import * as route from "../ffi/route/route.ts";
import { SystemError } from "../ffi/sys/error.ts";
import { AF_INET, AF_INET6 } from "../ffi/sys/uapi.ts";
import { SeenAddresses } from "./seen_addresses.ts";
import { inSlices } from "./slices.ts";

export interface FreeAddressesOptions {
  log(message: string): void;
  readonly pauses?: { readonly attached: number; readonly released: number };
}

const PAUSES = {
  /** An ADD whose question has not come yet takes less. */
  attached: 1000,
  /** The link of a pod that has ended is mostly gone then. */
  released: 10_000,
};

/** When pods have ended that had these addresses: times of `performance.now()`. */
export type ReleasedAddresses = ReadonlyMap<Ip, number>;

/**
 * An address had no flows when all were listed, and no pod had it since. Or its last pod has ended, and a later walk has
 * found none. While no pod has it, packets to it go nowhere, so no flow begins.
 */
export class FreeAddresses implements Disposable {
  readonly #host: Netns;
  readonly #log: (message: string) => void;
  readonly #pauses: typeof PAUSES;
  #listed: SeenAddresses | undefined;
  #hasBegun = false;
  /** Where packets to addresses without a pod went nowhere from then on. */
  #ranges: readonly Cidr[] = [];
  /** What pods have had since, and may have left flows. */
  readonly #used = new Set<Ip>();
  /** What was listed, and has no flows any more. */
  readonly #free = new Set<Ip>();
  readonly #released = new Map<Ip, number>();
  /** Attached, without a question of ADD yet; since when. */
  readonly #unasked = new Map<Ip, number>();
  #isOver = false;

  constructor(host: Netns, { log, pauses = PAUSES }: FreeAddressesOptions) {
    this.#host = host;
    this.#log = log;
    this.#pauses = pauses;
  }

  [Symbol.dispose](): void {
    this.#isOver = true;
  }

  /**
   * Lists what flows there are, once, as soon as the kernel refuses packets to addresses without a pod. Before, and if
   * that fails, no address is free.
   */
  async list(): Promise<void> {
    if (this.#hasBegun) return;
    this.#ranges = this.#ignoring(() => refusedRanges(this.#host), []);
    if (this.#ranges.length === 0) return;
    this.#hasBegun = true;
    let seen = new SeenAddresses();
    try {
      using nl = this.#host.run(() => openNetlink(NETLINK_NETFILTER, this.#host.path));
      const pieces = dumpFlowsInPieces(nl, () => void (seen = new SeenAddresses()), ({ source, replySource }) => {
        seen.add(source);
        seen.add(replySource);
      });
      await inSlices(pieces, () => this.#isOver);
      this.#listed = seen;
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      this.#log(`Cannot list connections, so each new pod waits for a walk over them: ${error.message}`);
    }
  }

  /** Somebody has these addresses, or had them. */
  use(ips: readonly Ip[]): void {
    for (const ip of ips) {
      this.#used.add(ip);
      this.#free.delete(ip);
      this.#released.delete(ip);
    }
  }

  /** Call it again and again with all that the guard of pods has. */
  noteAttached(ips: readonly Ip[]): void {
    const now = performance.now();
    const attached = new Set(ips);
    for (const ip of this.#unasked.keys()) if (!attached.has(ip)) this.#unasked.delete(ip);
    for (const ip of attached) {
      if (this.#used.has(ip)) continue;
      const since = this.#unasked.get(ip) ?? now;
      if (now - since < this.#pauses.attached) this.#unasked.set(ip, since);
      else this.use([ip]);
    }
  }

  /** A pod gets these addresses. @returns whether all are free */
  attach(ips: readonly Ip[]): boolean {
    const areFree = ips.every((ip) => this.#isFree(ip)) && this.#ignoring(() => {
      const ranges = refusedRanges(this.#host);
      return ips.every((ip) => ranges.includes(this.#rangeOf(ip)!));
    }, false);
    this.use(ips);
    return areFree;
  }

  /** A pod has ended that had these addresses. */
  detach(ips: readonly Ip[]): void {
    this.use(ips);
    for (const ip of ips) if (this.#rangeOf(ip)) this.#released.set(ip, performance.now());
  }

  /** What a walk is to look for. Tell {@linkcode settle} of it afterwards. */
  released(maxCount: number): ReleasedAddresses {
    const before = performance.now() - this.#pauses.released;
    const due = new Map(this.#released.entries().filter(([, at]) => at <= before).take(Math.max(0, maxCount)));
    for (const ip of this.#withWay([...due.keys()])) {
      due.delete(ip);
      this.#putOff(ip);
    }
    return due;
  }

  /** @param unseen those of which the walk has found no flow */
  settle(released: ReleasedAddresses, unseen: ReadonlySet<Ip>): void {
    const same = [...released].flatMap(([ip, at]) => this.#released.get(ip) === at ? [ip] : []);
    const withWay = this.#withWay(same);
    for (const ip of same) {
      if (!unseen.has(ip) || withWay.has(ip)) {
        this.#putOff(ip);
        continue;
      }
      this.#released.delete(ip);
      this.#used.delete(ip);
      if (this.#listed?.mayHave(ip)) this.#free.add(ip);
    }
  }

  #putOff(ip: Ip): void {
    this.#released.delete(ip);
    this.#released.set(ip, performance.now());
  }

  /** A DEL that failed has left the pod's link. */
  #withWay(ips: readonly Ip[]): ReadonlySet<Ip> {
    const ways = this.#ignoring(() => route.matchAll(this.#host.route, ips), undefined);
    return new Set(ips.filter((_, i) => ways === undefined || ways[i] !== undefined));
  }

  #rangeOf(ip: Ip): Cidr | undefined {
    return this.#ranges.find((range) => familyOf(range) === familyOf(ip) && containsIp(range, ip));
  }

  #isFree(ip: Ip): boolean {
    if (this.#listed === undefined || this.#used.has(ip)) return false;
    return this.#free.has(ip) || !this.#listed.mayHave(ip);
  }

  #ignoring<T>(ask: () => T, otherwise: T): T {
    try {
      return ask();
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      return otherwise;
    }
  }
}

/** Of pods with routes of their own. On a bridge, a packet to an address without a pod begins a flow. */
function refusedRanges({ route: nl }: Netns): readonly Cidr[] {
  const ranges = [AF_INET, AF_INET6].flatMap((family) => route.listUnreachable(nl, family));
  // No pod has the last address, and the tunnel has the first one.
  const ways = route.matchAll(nl, ranges.map(broadcastOf));
  return ranges.filter((_, i) => ways[i] === undefined);
}
