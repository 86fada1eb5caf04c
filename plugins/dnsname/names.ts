/** Names as DNS compares them. @see RFC 1035 §2.3.1, RFC 4343 */

const MAX_LABEL_LENGTH = 63;
/** Engines shorten a container id to so many digits. */
const SHORT_ID_LENGTH = 12;

/** Ids of engines have 64 digits, and a part of a name has at most 63 characters. */
export function containerIdName(containerId: string): string {
  return containerId.length > MAX_LABEL_LENGTH ? containerId.slice(0, SHORT_ID_LENGTH) : containerId;
}

/** `cni run` and cnitool make the id of the namespace's path: then its name is the container's. */
export function netnsName(containerId: string, sandbox: string): string | undefined {
  return /^cnitool-[0-9a-f]{20}$/.test(containerId) ? sandbox.slice(sandbox.lastIndexOf("/") + 1) : undefined;
}

/** DNS ignores the case of names. */
export function normalizeName(name: string): string {
  return name.toLowerCase();
}

/** `2.0.10.10.in-addr.arpa`, for the bytes of an address. */
export function reverseName(bytes: Uint8Array): string {
  if (bytes.length === 4) return `${[...bytes].reverse().join(".")}.in-addr.arpa`;
  const digits = [...bytes].flatMap((byte) => [byte >> 4, byte & 0xf]).reverse();
  return `${digits.map((digit) => digit.toString(16)).join(".")}.ip6.arpa`;
}

/** The bytes of the address that a reverse name stands for; `undefined` for other names. */
export function parseReverseName(name: string): Uint8Array | undefined {
  const v4 = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.in-addr\.arpa$/.exec(name);
  if (v4) {
    const parts = v4.slice(1).reverse().map(Number);
    return parts.every((part) => part < 256) ? Uint8Array.from(parts) : undefined;
  }
  const v6 = /^((?:[0-9a-f]\.){32})ip6\.arpa$/.exec(name)?.[1];
  if (v6 === undefined) return undefined;
  const digits = v6.replaceAll(".", "").split("").reverse();
  return Uint8Array.from({ length: 16 }, (_, i) => Number.parseInt(digits[2 * i]! + digits[2 * i + 1]!, 16));
}
