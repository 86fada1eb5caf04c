/**
 * Datatypes of sets. The kernel only stores their numbers; nft(8) prints values by them.
 *
 * @see nftables include/datatype.h enum datatypes
 */
import type { SetIn } from "./objects.ts";
import { NFT_DATA_VERDICT, NFT_SET_MAP } from "./uapi.ts";
import { BYTEORDER_HOST_ENDIAN } from "./userdata.ts";

export interface Datatype {
  readonly id: number;
  readonly size: number;
  /** The host's byte order, not the network's. */
  readonly hostOrder?: true;
}

export const ipv4Addr: Datatype = { id: 7, size: 4 };
export const ipv6Addr: Datatype = { id: 8, size: 16 };
export const etherAddr: Datatype = { id: 9, size: 6 };
export const inetProto: Datatype = { id: 12, size: 1 };
export const inetService: Datatype = { id: 13, size: 2 };
export const mark: Datatype = { id: 19, size: 4, hostOrder: true };
export const ifindexType: Datatype = { id: 20, size: 4, hostOrder: true };
export const ifnameType: Datatype = { id: 41, size: 16, hostOrder: true };

type SetDefinition = Pick<SetIn, "flags" | "keyType" | "keyLength" | "dataType" | "dataLength" | "userdata">;

export function setOf(key: readonly Datatype[]): SetDefinition {
  const userdata = key.length === 1 && key[0]!.hostOrder ? { userdata: { keyByteOrder: BYTEORDER_HOST_ENDIAN } } : {};
  return { flags: 0, keyType: concatenatedType(key), keyLength: concatenatedLength(key), ...userdata };
}

export function namedSet<D extends SetDefinition>(name: string, definition: D, comment: string) {
  return { ...definition, name, userdata: { ...definition.userdata, comment } };
}

export function mapOf(key: readonly Datatype[], data: readonly Datatype[] | "verdict"): SetDefinition {
  const values = data === "verdict"
    ? { dataType: NFT_DATA_VERDICT, dataLength: 16 }
    : { dataType: concatenatedType(data), dataLength: concatenatedLength(data) };
  return { ...setOf(key), ...values, flags: NFT_SET_MAP };
}

// Six bits for each type.
function concatenatedType(types: readonly Datatype[]): number {
  return types.reduce((id, type) => id << 6 | type.id, 0);
}

function concatenatedLength(types: readonly Datatype[]): number {
  if (types.length === 1) return types[0]!.size;
  return types.reduce((sum, { size }) => sum + ((size + 3) & ~3), 0);
}
