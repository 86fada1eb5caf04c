/**
 * IP addresses, networks and hardware addresses as canonical strings, compared by `===`.
 *
 * Read as the CNI ecosystem does: no leading zeros, no zone ids; IPv4-mapped IPv6 is IPv4.
 * @module
 */

/** An address in canonical form: `10.1.0.2`, `fd00::2` (RFC 5952). */
export type Ip = string & { readonly "~": "Ip" };

/** An address with a prefix length, host bits kept: `10.1.0.2/16`. */
export type Cidr = string & { readonly "~": "Cidr" };

/** A 48-bit hardware address: `0a:58:0a:01:00:02`. */
export type Mac = string & { readonly "~": "Mac" };

const DOT = 0x2e;
const COLON = 0x3a;
const DASH = 0x2d;
const ZERO = 0x30;

/**
 * Reads an IPv4 or IPv6 address.
 *
 * @example
 * ```ts
 * import { parseIp } from "./mod.ts";
 *
 * console.log(parseIp("FD00:0:0::2")); // fd00::2
 * ```
 *
 * @throws SyntaxError when `text` is not one
 */
export function parseIp(text: string): Ip {
  const bytes = decodeIp(text);
  if (!bytes) throw new SyntaxError(`Cannot parse IP address ${JSON.stringify(text)}: wrong form`);
  return encodeIp(bytes);
}

export function isIp(text: string): boolean {
  return decodeIp(text) !== undefined;
}

export function ipBytes(ip: Ip): Uint8Array {
  return decodeIp(ip)!;
}

export function ipFromBytes(bytes: Uint8Array): Ip {
  if (bytes.length !== 4 && bytes.length !== 16) {
    throw new RangeError(`Cannot read an IP address: expected 4 or 16 bytes, got "${bytes.length}"`);
  }
  return encodeIp(isIpv4Mapped(bytes) ? bytes.subarray(12) : bytes);
}

export function familyOf(address: Ip | Cidr): 4 | 6 {
  return address.includes(":") ? 6 : 4;
}

export function compareIps(a: Ip, b: Ip): number {
  return compareBytes(ipBytes(a), ipBytes(b));
}

export function nextIp(ip: Ip): Ip | undefined {
  return addToIp(ip, 1);
}

export function previousIp(ip: Ip): Ip | undefined {
  return addToIp(ip, -1);
}

/**
 * Reads `address/prefix length`.
 *
 * @example
 * ```ts
 * import { parseCidr } from "./mod.ts";
 *
 * console.log(parseCidr("10.1.0.2/16")); // 10.1.0.2/16
 * ```
 *
 * @throws SyntaxError when `text` is not that
 */
export function parseCidr(text: string): Cidr {
  const slash = text.indexOf("/");
  const bytes = slash < 0 ? undefined : decodeIp(text.slice(0, slash));
  let length = parsePrefixLength(text, slash + 1);
  // "::ffff:192.0.2.7/120" is 192.0.2.7/24: the first 96 bits mark it as mapped.
  if (bytes?.length === 4 && text.includes(":")) length -= 96;
  if (!bytes || !(length >= 0 && length <= bytes.length * 8)) {
    throw new SyntaxError(`Cannot parse CIDR ${JSON.stringify(text)}: wrong form`);
  }
  return `${encodeIp(bytes)}/${length}` as Cidr;
}

export function toCidr(ip: Ip, prefixLength: number): Cidr {
  if (!Number.isInteger(prefixLength) || prefixLength < 0 || prefixLength > (familyOf(ip) === 4 ? 32 : 128)) {
    throw new RangeError(`Cannot use prefix length "${prefixLength}" with "${ip}": out of range`);
  }
  return `${ip}/${prefixLength}` as Cidr;
}

export function hostPrefix(ip: Ip): Cidr {
  return toCidr(ip, familyOf(ip) === 4 ? 32 : 128);
}

export function isHostPrefix(network: Cidr): boolean {
  return prefixLengthOf(network) === (familyOf(network) === 4 ? 32 : 128);
}

export function ipOf(network: Cidr): Ip {
  return network.slice(0, network.indexOf("/")) as Ip;
}

export function prefixLengthOf(network: Cidr): number {
  return Number(network.slice(network.indexOf("/") + 1));
}

/** Clears the host bits: `10.1.0.2/16` → `10.1.0.0/16`. */
export function networkOf(network: Cidr): Cidr {
  const length = prefixLengthOf(network);
  return `${encodeIp(setHostBits(ipBytes(ipOf(network)), length, 0))}/${length}` as Cidr;
}

// 224.0.0.0/4, ff00::/8
export function isMulticast(address: Ip): boolean {
  const [first = 0] = ipBytes(address);
  return familyOf(address) === 4 ? first >> 4 === 0xe : first === 0xff;
}

export function broadcastOf(network: Cidr): Ip {
  return encodeIp(setHostBits(ipBytes(ipOf(network)), prefixLengthOf(network), 0xff));
}

export function containsIp(network: Cidr, ip: Ip): boolean {
  return samePrefix(ipBytes(ipOf(network)), ipBytes(ip), prefixLengthOf(network));
}

export function networksOverlap(a: Cidr, b: Cidr): boolean {
  return samePrefix(ipBytes(ipOf(a)), ipBytes(ipOf(b)), Math.min(prefixLengthOf(a), prefixLengthOf(b)));
}

/**
 * Reads a 48-bit hardware address: pairs joined by `:` or `-`, or quads joined by `.`.
 *
 * @example
 * ```ts
 * import { parseMac } from "./mod.ts";
 *
 * console.log(parseMac("0A-58-0A-01-00-02")); // 0a:58:0a:01:00:02
 * ```
 *
 * @throws SyntaxError
 */
export function parseMac(text: string): Mac {
  const bytes = decodeMac(text);
  if (!bytes) throw new SyntaxError(`Cannot parse MAC address ${JSON.stringify(text)}: wrong form`);
  return macFromBytes(bytes);
}

export function macBytes(mac: Mac): Uint8Array {
  return decodeMac(mac)!;
}

export function macFromBytes(bytes: Uint8Array): Mac {
  if (bytes.length !== 6) throw new RangeError(`Cannot read a MAC address: expected 6 bytes, got "${bytes.length}"`);
  let text = "";
  for (const byte of bytes) text += (text && ":") + (byte < 16 ? "0" : "") + byte.toString(16);
  return text as Mac;
}

function decodeIp(text: string): Uint8Array | undefined {
  if (text.includes(":")) {
    const bytes = decodeIpv6(text);
    return bytes && isIpv4Mapped(bytes) ? bytes.subarray(12) : bytes;
  }
  const bytes = new Uint8Array(4);
  return decodeIpv4(text, 0, bytes, 0) ? bytes : undefined;
}

function decodeIpv4(text: string, from: number, out: Uint8Array, at: number): boolean {
  const last = at + 3;
  let value = -1;
  for (let i = from; i < text.length; i++) {
    const char = text.charCodeAt(i);
    if (char === DOT) {
      if (value < 0 || at === last) return false;
      out[at++] = value;
      value = -1;
      continue;
    }
    const digit = char - ZERO;
    if (!(digit >= 0 && digit <= 9) || value === 0) return false;
    value = value < 0 ? digit : value * 10 + digit;
    if (value > 255) return false;
  }
  if (value < 0 || at !== last) return false;
  out[at] = value;
  return true;
}

function decodeIpv6(text: string): Uint8Array | undefined {
  const out = new Uint8Array(16);
  let at = 0;
  let zerosAt = -1;
  let i = 0;
  if (text.startsWith("::")) zerosAt = 0, i = 2;
  while (i < text.length) {
    const start = i;
    let group = 0;
    for (let digit; i < text.length && (digit = hexDigit(text.charCodeAt(i))) >= 0; i++) group = group * 16 + digit;
    if (i === start || i > start + 4 || at === 16) return undefined;
    if (text.charCodeAt(i) === DOT) {
      if (at > 12 || !decodeIpv4(text, start, out, at)) return undefined;
      at += 4;
      break;
    }
    out[at++] = group >> 8;
    out[at++] = group & 0xff;
    if (i === text.length) break;
    if (text.charCodeAt(i++) !== COLON || i === text.length) return undefined;
    if (text.charCodeAt(i) === COLON) {
      if (zerosAt >= 0) return undefined;
      zerosAt = at;
      i++;
    }
  }
  return zerosAt < 0 ? (at === 16 ? out : undefined) : expandZeros(out, zerosAt, at);
}

/** "::" stands for at least one group. */
function expandZeros(out: Uint8Array, gap: number, filled: number): Uint8Array | undefined {
  if (filled === 16) return undefined;
  const moved = filled - gap;
  out.copyWithin(16 - moved, gap, filled);
  return out.fill(0, gap, 16 - moved);
}

function hexDigit(char: number): number {
  if (char >= ZERO && char <= 0x39) return char - ZERO;
  const letter = char | 0x20;
  return letter >= 0x61 && letter <= 0x66 ? letter - 0x57 : -1;
}

function encodeIp(bytes: Uint8Array): Ip {
  return (bytes.length === 4 ? bytes.join(".") : encodeIpv6(bytes)) as Ip;
}

/** RFC 5952: the first longest run of two or more zero groups becomes "::". */
function encodeIpv6(bytes: Uint8Array): string {
  let from = -1;
  let to = -1;
  for (let i = 0; i < 8; i++) {
    let end = i;
    while (end < 8 && bytes[end * 2] === 0 && bytes[end * 2 + 1] === 0) end++;
    if (end - i > 1 && end - i > to - from) from = i, to = end;
    if (end > i) i = end;
  }
  let text = "";
  for (let i = 0; i < 8; i++) {
    if (i === from) {
      text += "::";
      i = to - 1;
      continue;
    }
    if (i > 0 && i !== to) text += ":";
    text += (bytes[i * 2] << 8 | bytes[i * 2 + 1]).toString(16);
  }
  return text;
}

function isIpv4Mapped(bytes: Uint8Array): boolean {
  if (bytes.length !== 16 || bytes[10] !== 0xff || bytes[11] !== 0xff) return false;
  for (let i = 0; i < 10; i++) if (bytes[i] !== 0) return false;
  return true;
}

/** Returns NaN unless a number ends the text. */
function parsePrefixLength(text: string, from: number): number {
  let value = NaN;
  for (let i = from; i < text.length && i < from + 4; i++) {
    const digit = text.charCodeAt(i) - ZERO;
    if (digit < 0 || digit > 9 || value === 0) return NaN;
    value = i === from ? digit : value * 10 + digit;
  }
  return value;
}

function setHostBits(bytes: Uint8Array, length: number, fill: 0 | 0xff): Uint8Array {
  for (let i = length >> 3; i < bytes.length; i++) {
    const hostMask = i === length >> 3 ? 0xff >> (length & 7) : 0xff;
    bytes[i] = bytes[i] & ~hostMask | fill & hostMask;
  }
  return bytes;
}

function samePrefix(a: Uint8Array, b: Uint8Array, length: number): boolean {
  if (a.length !== b.length) return false;
  const wholeBytes = length >> 3;
  for (let i = 0; i < wholeBytes; i++) if (a[i] !== b[i]) return false;
  return (length & 7) === 0 || (a[wholeBytes] ^ b[wholeBytes]) >> (8 - (length & 7)) === 0;
}

function compareBytes(a: Uint8Array, b: Uint8Array): number {
  if (a.length !== b.length) return a.length - b.length;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return a[i] - b[i];
  return 0;
}

function addToIp(ip: Ip, by: 1 | -1): Ip | undefined {
  const bytes = ipBytes(ip);
  const carryByte = by === 1 ? 0xff : 0;
  for (let i = bytes.length - 1; i >= 0; i--) {
    const carries = bytes[i] === carryByte;
    bytes[i] += by;
    if (!carries) return isIpv4Mapped(bytes) ? undefined : encodeIp(bytes); // mapped: left its family
  }
  return undefined;
}

function decodeMac(text: string): Uint8Array | undefined {
  const separator = [COLON, DASH].find((char) => char === text.charCodeAt(2)) ?? DOT;
  const group = separator === DOT ? 4 : 2;
  if (text.length !== 12 + 12 / group - 1) return undefined;
  const out = new Uint8Array(6);
  let nibbles = 0;
  for (let i = 0; i < text.length; i++) {
    const char = text.charCodeAt(i);
    if (i % (group + 1) === group) {
      if (char !== separator) return undefined;
      continue;
    }
    const digit = hexDigit(char);
    if (digit < 0) return undefined;
    out[nibbles >> 1] |= nibbles++ % 2 === 0 ? digit << 4 : digit;
  }
  return out;
}
