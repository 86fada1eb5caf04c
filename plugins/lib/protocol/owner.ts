/**
 * Who owns an element or a rule: the attachment, written as text into the comment that the kernel keeps with it.
 *
 * @module
 */

import { CniError, Code } from "../../../spec/error.ts";
import { excerpt } from "../../../spec/schema.ts";

/** One container interface on one network. None of the three can hold a blank (SPEC §Configuration format, §Parameters). */
export interface Owner {
  /** The network's name. */
  readonly network: string;
  /** CNI_CONTAINERID. */
  readonly containerId: string;
  /** CNI_IFNAME. */
  readonly ifname: string;
}

/** What the kernel keeps with an element of a set: see COMMENT_MAX_BYTES. nft(8) reads back up to 127. */
const MAX_COMMENT_BYTES = 250;

/** `network containerId ifname`, to be written @throws {CniError} code 4 if that is more than the kernel keeps */
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

/** The same to search for and to compare, however long: what could not be written is not there, and DEL and GC have nothing to remove. */
export function ownerText({ network, containerId, ifname }: Owner): string {
  return `${network} ${containerId} ${ifname}`;
}

/** Tells whether an owner is one of many, in a time that does not depend on how many. */
export function isOneOfOwners(owners: readonly Owner[]): (owner: Owner) => boolean {
  const texts = new Set(owners.map(ownerText));
  return (owner) => texts.has(ownerText(owner));
}

/** What the text of every owner on this network begins with. */
export function ownerPrefix(network: string): string {
  return `${network} `;
}

/** Reads what {@linkcode formatOwner} or {@linkcode formatOwnerWithNote} wrote; `undefined` for any other text. */
export function parseOwner(text: string): Owner | undefined {
  const [network, containerId, ifname, note = NOTE_PREFIX, ...surplus] = text.split(" ");
  if (!network || !containerId || !ifname || !note.startsWith(NOTE_PREFIX) || surplus.length > 0) return undefined;
  return { network, containerId, ifname };
}

/** What no other word behind an owner begins with. */
const NOTE_PREFIX = "#";

/** `network containerId ifname #note`; without the note if there is none, or if it does not fit. @throws {CniError} as {@linkcode formatOwner} */
export function formatOwnerWithNote(owner: Owner, note: string | undefined): string {
  const text = formatOwner(owner);
  const textWithNote = `${text} ${NOTE_PREFIX}${note}`;
  return note === undefined || utf8LengthOf(textWithNote) > MAX_COMMENT_BYTES ? text : textWithNote;
}

/** The note behind an owner. */
export function parseNote(text: string): string | undefined {
  return text.split(" ")[3]?.slice(NOTE_PREFIX.length);
}

/** What nobody else begins the alias of a link with: three words may be anybody's, and GC goes by the alias alone. */
const ALIAS_PREFIX = "cni:";

/** `cni:network containerId ifname`, what a link says of its owner. @throws {CniError} code 4 if that is more than the kernel keeps: IFALIASZ */
export function formatAlias(owner: Owner): string {
  return ALIAS_PREFIX + formatOwner(owner);
}

/** Reads what {@linkcode formatAlias} wrote; `undefined` for any other text, or none. */
export function parseAlias(alias: string | undefined): Owner | undefined {
  return alias?.startsWith(ALIAS_PREFIX) ? parseOwner(alias.slice(ALIAS_PREFIX.length)) : undefined;
}

/** The owner in the words of an error message. */
export function describeOwner({ network, containerId, ifname }: Owner): string {
  return `container "${containerId}" (network "${network}", interface "${ifname}")`;
}

/** Whose it is that CHECK misses, and how it comes back. */
export function ownerRestoreHint(owner: Owner): string {
  return `of ${describeOwner(owner)}; put back what is missing: cni run restore ${owner.network}`;
}

export function sameOwner(a: Owner | undefined, b: Owner | undefined): boolean {
  return a?.network === b?.network && a?.containerId === b?.containerId && a?.ifname === b?.ifname;
}

/** Logs what GC removes of an attachment, for {@linkcode isStaleIn}. @param what in a word or two */
export function logRemoval(log: (message: string) => void, what: string): (owner: Owner) => void {
  return (owner) => log(`Removing ${what} of ${describeOwner(owner)}`);
}

/**
 * The attachments of a network that live no more, by those that do: what GC removes (SPEC §GC).
 *
 * @param logStale told once of each that it is asked about
 */
export function isStaleIn(
  network: string,
  validAttachments: readonly Omit<Owner, "network">[],
  logStale: (owner: Owner) => void = () => {},
): (owner: Owner) => boolean {
  const isValid = isOneOfOwners(validAttachments.map((attachment) => ({ ...attachment, network })));
  const logged = new Set<string>();
  return (owner) => {
    const isStale = owner.network === network && !isValid(owner);
    if (isStale && !logged.has(ownerText(owner))) {
      logged.add(ownerText(owner));
      logStale(owner);
    }
    return isStale;
  };
}
