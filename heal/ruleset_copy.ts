import * as nft from "../ffi/nft/objects.ts";
import type { RulesetChange } from "../ffi/nft/ruleset_monitor.ts";
import { NFT_MSG_DELSET, NFT_MSG_DELSETELEM, NFT_MSG_DELTABLE, NFT_MSG_NEWSETELEM } from "../ffi/nft/uapi.ts";
import type { Netlink } from "../ffi/netlink/socket.ts";
import { type Owner, ownerText, parseOwner } from "../plugins/lib/model/owner.ts";
import { TABLES } from "../plugins/lib/ruleset/repair.ts";
import type { TableDefinition } from "../plugins/lib/ruleset/table.ts";

export interface OwnedElement {
  readonly table: TableDefinition;
  readonly set: string;
  readonly element: nft.Element;
}

interface CopiedSet {
  readonly table: TableDefinition;
  readonly set: string;
  readonly elements: Map<string, { readonly element: nft.Element; readonly owner: Owner }>;
}

/**
 * Elements of attachments, as this program made them: what another program removes stays in the copy.
 *
 * It is read after each look. From then on, the kernel tells of changes.
 */
export class RulesetCopy {
  #sets: Map<string, CopiedSet> | undefined;
  /** Since a loss: a DEL may have found nothing to remove, so the copy still has what an ADD replaced. */
  #changedOwners: Set<string> | undefined;

  get isKnown(): boolean {
    return this.#sets !== undefined;
  }

  /** How many elements the largest set has: about as many as there are attachments. */
  get size(): number {
    return Math.max(0, ...(this.#sets?.values().map(({ elements }) => elements.size) ?? []));
  }

  /** Call it before {@linkcode note} is told of changes that were made meanwhile. */
  read(nl: Netlink): void {
    this.forget();
    const listed = TABLES.flatMap((table) =>
      nft.listSets(nl, table).filter(({ name = "" }) => !table.isTransient?.(name)).map(({ name = "" }) => ({
        table,
        name,
        elements: nft.listElements(nl, table, name),
      }))
    );
    this.#sets = new Map();
    this.#changedOwners = undefined;
    for (const { table, name, elements } of listed) for (const element of elements) this.#add(table, name, element);
  }

  /** Call it when changes are not known. */
  forget(): void {
    this.#sets = undefined;
  }

  /** Another program may have removed something. */
  noteLoss(): void {
    this.#changedOwners ??= new Set();
  }

  /** Whether the copy has all that an owner had before the loss, and nothing else. */
  isCertain(owner: Owner): boolean {
    return this.#sets !== undefined && this.#changedOwners?.has(ownerText(owner)) !== true;
  }

  /** Tells of a change by this program, in order. @param isRestore whether it put back what an ADD made */
  note(change: RulesetChange, isRestore: boolean): void {
    const { operation, name: set } = change;
    const table = TABLES.find((own) => own.table === change.table && own.family === change.family);
    if (!this.#sets || !table || table.isTransient?.(set)) return;
    if (operation === NFT_MSG_DELTABLE || operation === NFT_MSG_DELSET) this.forget();
    else if (operation === NFT_MSG_NEWSETELEM) {
      for (const element of change.elements()) {
        const owner = this.#add(table, set, element);
        if (owner && !isRestore) this.#changedOwners?.add(ownerText(owner));
      }
    } else if (operation === NFT_MSG_DELSETELEM) {
      const elements = this.#sets.get(setId(table, set))?.elements;
      for (const { key } of change.elements()) elements?.delete(nft.formatHex(key));
    }
  }

  /** What the kernel lacks, by {@linkcode ownerText}, without what plugins alone restore. */
  findLost(nl: Netlink): Map<string, OwnedElement[]> {
    const lost = new Map<string, OwnedElement[]>();
    for (const { table, set, elements } of this.#sets?.values() ?? []) {
      if (elements.size === 0 || table.isRestoredByPlugin) continue;
      const present = new Set(nft.listElements(nl, table, set).map(({ key }) => nft.formatHex(key)));
      for (const [key, { element, owner }] of elements) {
        if (present.has(key)) continue;
        const text = ownerText(owner);
        const owned = lost.get(text);
        if (owned) owned.push({ table, set, element });
        else lost.set(text, [{ table, set, element }]);
      }
    }
    return lost;
  }

  #add(table: TableDefinition, set: string, element: nft.Element): Owner | undefined {
    const owner = parseOwner(element.comment ?? "");
    if (!owner) return undefined;
    const id = setId(table, set);
    const copied = this.#sets!.get(id) ?? { table, set, elements: new Map() };
    copied.elements.set(nft.formatHex(element.key), { element, owner });
    this.#sets!.set(id, copied);
    return owner;
  }
}

const setId = ({ family, table }: TableDefinition, set: string): string => `${family} ${table} ${set}`;
