import type { Element } from "../../ffi/nft/objects.ts";

export interface SetElement extends Element {
  readonly set: string;
}

export const setElementId = ({ set, key, flags = 0 }: SetElement): string => `${set} ${key.toHex()} ${flags}`;
