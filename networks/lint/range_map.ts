/**
 * Which addresses somebody gives out, in pieces that are sorted and do not overlap. So 10,000 networks are not compared
 * in pairs.
 */
import { familyOf, type Ip, ipBytes } from "../../ffi/address.ts";
import type { AddressRange } from "../../plugins/lib/model/address_ranges.ts";

interface Piece<T> {
  readonly start: bigint;
  /** The first address behind it. */
  readonly end: bigint;
  readonly owners: readonly T[];
}

/** Remembers the first owners of each address, up to a number. Any two of them differ. */
export class RangeMap<T> {
  #pieces: Piece<T>[] = [];
  readonly #maxOwners: number;
  readonly #differ: (a: T, b: T) => boolean;

  constructor(maxOwners: number, differ: (a: T, b: T) => boolean) {
    this.#maxOwners = maxOwners;
    this.#differ = differ;
  }

  /** Finds the wanted owner of the lowest address that has one. */
  find(range: AddressRange, isWanted: (owner: T) => boolean): T | undefined {
    const { start, end } = limitsOf(range);
    for (let at = this.#firstBehind(start); at < this.#pieces.length && this.#pieces[at]!.start < end; at++) {
      const owner = this.#pieces[at]!.owners.find(isWanted);
      if (owner !== undefined) return owner;
    }
    return undefined;
  }

  add(range: AddressRange, owner: T): void {
    const { start, end } = limitsOf(range);
    const first = this.#firstBehind(start);
    const pieces: Piece<T>[] = [];
    let at = first;
    let next = start;
    for (; at < this.#pieces.length && this.#pieces[at]!.start < end; at++) {
      const piece = this.#pieces[at]!;
      if (next < piece.start) pieces.push({ start: next, end: piece.start, owners: [owner] });
      pieces.push(...this.#divide(piece, start, end, owner));
      next = piece.end;
    }
    if (next < end) pieces.push({ start: next, end, owners: [owner] });
    // In place is faster, and a call can have only so many arguments.
    if (pieces.length < 1000) this.#pieces.splice(first, at - first, ...pieces);
    else this.#pieces = [...this.#pieces.slice(0, first), ...pieces, ...this.#pieces.slice(at)];
  }

  #divide(piece: Piece<T>, start: bigint, end: bigint, owner: T): Piece<T>[] {
    const { owners } = piece;
    if (owners.length === this.#maxOwners || !owners.every((other) => this.#differ(other, owner))) return [piece];
    const [from, to] = [piece.start < start ? start : piece.start, piece.end < end ? piece.end : end];
    return [
      { ...piece, end: from },
      { start: from, end: to, owners: [...owners, owner] },
      { ...piece, start: to },
    ].filter((part) => part.start < part.end);
  }

  #firstBehind(address: bigint): number {
    let [from, to] = [0, this.#pieces.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      if (this.#pieces[middle]!.end <= address) from = middle + 1;
      else to = middle;
    }
    return from;
  }
}

function limitsOf({ start, end }: AddressRange): Pick<Piece<unknown>, "start" | "end"> {
  return { start: numberOf(start), end: numberOf(end) + 1n };
}

/** IPv6 addresses lie behind those of IPv4. */
function numberOf(ip: Ip): bigint {
  const number = BigInt(`0x${ipBytes(ip).toHex()}`);
  return familyOf(ip) === 4 ? number : number + 2n ** 32n;
}
