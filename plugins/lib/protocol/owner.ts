/** The owner of a link, element or rule: an attachment, as text in the kernel's comment or alias. @module */
import { CniError, Code } from "../../../spec/error.ts";
import { excerpt } from "../../../spec/jsonc.ts";

/** One container interface on one network. None of the three can hold a blank (SPEC §Parameters). */
export interface Owner {
  /** The network's name. */
  readonly network: string;
  /** CNI_CONTAINERID. */
  readonly containerId: string;
  /** CNI_IFNAME. */
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

/** The same to search for, of any length: DEL and GC find nothing if it could not be written. */
export function ownerText({ network, containerId, ifname }: Owner): string {
  return `${network} ${containerId} ${ifname}`;
}

/** Tells whether an owner is one of many, in constant time. */
export function isOneOfOwners(owners: readonly Owner[]): (owner: Owner) => boolean {
  const texts = new Set(owners.map(ownerText));
  return (owner) => texts.has(ownerText(owner));
}

/** The prefix of every owner on this network. */
export function ownerPrefix(network: string): string {
  return `${network} `;
}

/** Reads the text of an owner, with or without a note; `undefined` for any other text. */
export function parseOwner(text: string): Owner | undefined {
  const [network, containerId, ifname, note = NOTE_PREFIX, ...surplus] = text.split(" ");
  if (!network || !containerId || !ifname || !note.startsWith(NOTE_PREFIX) || surplus.length > 0) return undefined;
  return { network, containerId, ifname };
}

const NOTE_PREFIX = "#";

/** `network containerId ifname #note`, without a note that does not fit. @throws {CniError} as {@linkcode formatOwner} */
export function formatOwnerWithNote(owner: Owner, note: string | undefined): string {
  const text = formatOwner(owner);
  const textWithNote = `${text} ${NOTE_PREFIX}${note}`;
  return note === undefined || utf8LengthOf(textWithNote) > MAX_COMMENT_BYTES ? text : textWithNote;
}

/** The note behind an owner. */
export function parseNote(text: string): string | undefined {
  return text.split(" ")[3]?.slice(NOTE_PREFIX.length);
}

/** Marks an alias as ours: others may have three words too, and GC goes by the alias alone. */
const ALIAS_PREFIX = "cni:";

/** `cni:network containerId ifname`, for a link. @throws {CniError} as {@linkcode formatOwner}, whose limit is below IFALIASZ */
export function formatAlias(owner: Owner): string {
  return ALIAS_PREFIX + formatOwner(owner);
}

/** Reads the owner from an alias; `undefined` for any other alias. */
export function parseAlias(alias: string | undefined): Owner | undefined {
  return alias?.startsWith(ALIAS_PREFIX) ? parseOwner(alias.slice(ALIAS_PREFIX.length)) : undefined;
}

export function describeOwner({ network, containerId, ifname }: Owner): string {
  return `container "${containerId}" (network "${network}", interface "${ifname}")`;
}

/** For what another container has: how to take it away. `cni run gc` would need the names of all that stay. */
export function ownerDetachHint({ network, containerId, ifname }: Owner): string {
  return `if that container is gone: cni run del ${network} --container-id ${containerId} --ifname ${ifname}`;
}

/** For what CHECK misses: its owner, and how to restore it. */
export function ownerRestoreHint(owner: Owner): string {
  return `of ${describeOwner(owner)}; put back what is missing: cni run restore ${owner.network}`;
}

export function sameOwner(a: Owner | undefined, b: Owner | undefined): boolean {
  return a?.network === b?.network && a?.containerId === b?.containerId && a?.ifname === b?.ifname;
}

/** Logs what GC removes, for {@linkcode staleOwnerFilter}. @param what in a word or two */
export function logRemoval(log: (message: string) => void, what: string): (owner: Owner) => void {
  return (owner) => log(`Removing ${what} of ${describeOwner(owner)}`);
}

/** Tells the stale owners of a network, which GC removes (SPEC §GC). @param logStale gets each of them once */
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
