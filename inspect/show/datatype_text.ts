import { ipFromBytes } from "../../ffi/address.ts";
import {
  type Datatype,
  etherAddr,
  ifnameType,
  inetProto,
  inetService,
  ipv4Addr,
  ipv6Addr,
  mark,
} from "../../ffi/nft/datatypes.ts";
import { type Element, formatHex, type Set as NftSet } from "../../ffi/nft/objects.ts";
import type { Data } from "../../ffi/nft/expressions.ts";
import { NF_ACCEPT, NF_DROP, NFT_DATA_VERDICT, NFT_GOTO, NFT_JUMP, NFT_RETURN } from "../../ffi/nft/uapi.ts";

const DATATYPES = [ipv4Addr, ipv6Addr, etherAddr, inetProto, inetService, mark, ifnameType];

// RFC 5237
export const PROTOCOL_NAMES: Readonly<Record<number, string>> = { 6: "tcp", 17: "udp", 132: "sctp" };

/** `10.88.0.2 : jump masquerade-10.88.0.0/24`, as nft(8) prints it. */
export function elementText({ keyType, dataType }: NftSet, { key, data }: Element): string {
  const keyText = fieldTexts(keyType, key).join(" . ");
  if (data?.verdict) return `${keyText} : ${verdictText(data.verdict)}`;
  if (!data?.value || dataType === undefined || dataType === NFT_DATA_VERDICT) return keyText;
  return `${keyText} : ${fieldTexts(dataType, data.value).join(" . ")}`;
}

/** The fields of a key or value; one in hexadecimal if its type is unknown. */
export function fieldTexts(concatenatedType: number | undefined, value: Uint8Array): string[] {
  const types = splitType(concatenatedType);
  if (!types) return [formatHex(value)];
  let at = 0;
  return types.map((type) => {
    const field = value.subarray(at, at + type.size);
    // Fields of a concatenation are padded to 4 bytes.
    at += (type.size + 3) & ~3;
    return fieldText(type, field);
  });
}

/** Six bits for each type. */
function splitType(concatenatedType = 0): Datatype[] | undefined {
  const types: Datatype[] = [];
  for (let rest = concatenatedType; rest > 0; rest >>>= 6) {
    const type = DATATYPES.find(({ id }) => id === (rest & 0x3f));
    if (!type) return undefined;
    types.unshift(type);
  }
  return types.length > 0 ? types : undefined;
}

function fieldText(type: Datatype, field: Uint8Array): string {
  switch (type) {
    case ipv4Addr:
    case ipv6Addr:
      return ipFromBytes(field);
    case etherAddr:
      return [...field].map((byte) => byte.toString(16).padStart(2, "0")).join(":");
    case inetProto:
      return PROTOCOL_NAMES[field[0]!] ?? String(field[0]);
    case inetService:
      return String(field[0]! << 8 | field[1]!);
    case ifnameType:
      return JSON.stringify(new TextDecoder().decode(field).replace(/\0.*$/s, ""));
    default:
      return hostOrderHex(field);
  }
}

/** `0x20000000`: marks are in the processor's byte order. */
export function hostOrderHex(field: Uint8Array): string {
  return `0x${field.toReversed().toHex()}`;
}

export function verdictText({ code = NF_DROP, chain = "" }: NonNullable<Data["verdict"]>): string {
  const words: Readonly<Record<number, string>> = {
    [NF_DROP]: "drop",
    [NF_ACCEPT]: "accept",
    [NFT_RETURN]: "return",
    [NFT_JUMP]: `jump ${chain}`,
    [NFT_GOTO]: `goto ${chain}`,
  };
  return words[code] ?? `[verdict ${code}]`;
}
