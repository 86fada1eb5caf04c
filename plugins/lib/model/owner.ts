/** An attachment as text in the kernel's comments and aliases. @module */
import { CniError, Code } from "../../../spec/error.ts";
import { excerpt } from "../../../spec/jsonc.ts";
import { shellCommand } from "../../../spec/shell_command.ts";

/** One container interface on one network. No part can hold a blank (SPEC §Parameters). */
export interface Owner {
  /** The name of the network, from the configuration. */
  readonly network: string;
  /** The container's id, as CNI_CONTAINERID has it. */
  readonly containerId: string;
  /** The interface's name, as CNI_IFNAME has it. */
  readonly ifname: string;
}

/** The kernel's limit for set elements, see COMMENT_MAX_BYTES. nft(8) reads back up to 127. */
const MAX_COMMENT_BYTES = 250;

/** `network containerId ifname`, to write. @throws {CniError} code 4 if it is too long for the kernel */
export function formatOwner(owner: Owner): string {
  const text = ownerText(owner);
  const length = utf8LengthOf(text);
  if (length <= MAX_COMMENT_BYTES) return text;
  throw new CniError(
    Code.InvalidEnvironment,
    `Cannot name owner ${excerpt(text)} in the ruleset: network name, container id and interface name have ${length} ` +
      `bytes together with two blanks, and ${MAX_COMMENT_BYTES} fit`,
  );
}

const utf8LengthOf = (text: string): number => new TextEncoder().encode(text).length;

/** The text to search for, of any length: one too long to write matches nothing. */
export function ownerText({ network, containerId, ifname }: Owner): string {
  return `${network} ${containerId} ${ifname}`;
}

/** Needs constant time per owner. */
export function isOneOfOwners(owners: readonly Owner[]): (owner: Owner) => boolean {
  const texts = new Set(owners.map(ownerText));
  return (owner) => texts.has(ownerText(owner));
}

export function ownerPrefix(network: string): string {
  return `${network} `;
}

/** The text may have a note. */
export function parseOwner(text: string): Owner | undefined {
  const [network, containerId, ifname, note = NOTE_PREFIX, ...surplus] = text.split(" ");
  if (!network || !containerId || !ifname || !note.startsWith(NOTE_PREFIX) || surplus.length > 0) return undefined;
  return { network, containerId, ifname };
}

const NOTE_PREFIX = "#";

/** `network containerId ifname #note`; drops a note that does not fit. @throws {CniError} as {@linkcode formatOwner} */
export function formatOwnerWithNote(owner: Owner, note: string | undefined): string {
  const text = formatOwner(owner);
  const textWithNote = `${text} ${NOTE_PREFIX}${note}`;
  return note === undefined || utf8LengthOf(textWithNote) > MAX_COMMENT_BYTES ? text : textWithNote;
}

export function parseNote(text: string): string | undefined {
  return text.split(" ")[3]?.slice(NOTE_PREFIX.length);
}

/** Other programs' aliases may have three words too, and GC relies on the alias alone. */
const ALIAS_PREFIX = "cni:";

/** `cni:network containerId ifname`. Its limit is below IFALIASZ. @throws {CniError} as {@linkcode formatOwner} */
export function formatAlias(owner: Owner): string {
  return ALIAS_PREFIX + formatOwner(owner);
}

export function parseAlias(alias: string | undefined): Owner | undefined {
  return alias?.startsWith(ALIAS_PREFIX) ? parseOwner(alias.slice(ALIAS_PREFIX.length)) : undefined;
}

export function describeOwner({ network, containerId, ifname }: Owner): string {
  return `container "${containerId}" (network "${network}", interface "${ifname}")`;
}

/** A command to paste. Not `cni run gc`: it needs the names of all that stay. */
export function detachCommand({ network, containerId, ifname }: Owner, ...options: readonly string[]): string {
  return shellCommand(["cni", "run", "del", network, "--container-id", containerId, "--ifname", ifname, ...options]);
}

export function ownerDetachHint(owner: Owner): string {
  return `if that container is gone: ${detachCommand(owner)}`;
}

export function ownerRestoreHint(owner: Owner): string {
  return `of ${describeOwner(owner)}; put back what is missing: cni run restore ${owner.network}`;
}

export function sameOwner(a: Owner | undefined, b: Owner | undefined): boolean {
  return a?.network === b?.network && a?.containerId === b?.containerId && a?.ifname === b?.ifname;
}

export function logRemoval(log: (message: string) => void, what: string): (owner: Owner) => void {
  return (owner) => log(`Removing ${what} of ${describeOwner(owner)}`);
}

/** Matches a network's owners that GC removes (SPEC §GC). @param logStale gets each of them once */
export function staleOwnerFilter(
  network: string,
  validAttachments: readonly Omit<Owner, "network">[],
  logStale: (owner: Owner) => void = () => {},
): (owner: Owner) => boolean {
  const isValid = isOneOfOwners(validAttachments.map((attachment) => ({ ...attachment, network })));
  const logged = new Set<string>();
  return (owner) => {
    if (owner.network !== network || isValid(owner)) return false;
    if (!logged.has(ownerText(owner))) logStale(owner);
    logged.add(ownerText(owner));
    return true;
  };
}
