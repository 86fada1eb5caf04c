/** Marks of links that several ADDs share. */
import type * as link from "../../../ffi/route/link.ts";

/** The alias of a shared link that the bridge plugin created. A network's removal leaves bridges of others. */
export const CREATED_ALIAS = "cni:bridge";

export function isCreatedHere({ alias }: Pick<link.Link, "alias">): boolean {
  return alias === CREATED_ALIAS;
}

/** The upper eight bits of our groups. */
export const GROUP_PREFIX = 0x43;

/** Whether no ADD has succeeded with the link. */
export function isNewLink({ group = 0 }: Pick<link.Link, "group">): boolean {
  return group >>> 24 === GROUP_PREFIX;
}
