/** A set of addresses that needs no more memory for half a million of them than for one. @module */
import type { Ip } from "../ffi/address.ts";

/** A megabyte: with 100,000 addresses, 1 % of others seem to be in it. */
const BITS = 2 ** 23;

export class SeenAddresses {
  readonly #bytes = new Uint8Array(BITS / 8);

  add(ip: Ip): void {
    const bit = bitOf(ip);
    this.#bytes[bit >> 3]! |= 1 << (bit & 7);
  }

  /** @returns true also for some that were never added */
  mayHave(ip: Ip): boolean {
    const bit = bitOf(ip);
    return (this.#bytes[bit >> 3]! & 1 << (bit & 7)) !== 0;
  }
}

const bitOf = (ip: Ip): number => Bun.hash.crc32(ip) % BITS;
