/** Which addresses are attached: the guard tells, and while it is lost, the links of pods do. @module */
import { findTable, getGenerationId } from "../ffi/nft/objects.ts";
import type { Ip } from "../ffi/address.ts";
import type { Netlink } from "../ffi/netlink/socket.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import * as link from "../ffi/route/link.ts";
import { isOneOfOwners, type Owner, ownerText } from "../plugins/lib/model/owner.ts";
import {
  type AttachedAddress,
  type BridgedAddress,
  listBridgedPods,
  listRecordedPods,
  readGuard,
} from "../plugins/lib/policy/attached_pods.ts";
import { bridgeGuardElements, guardElements } from "../plugins/lib/policy/guard_elements.ts";
import { removeElementsOf, restoreElements } from "../plugins/lib/ruleset/elements.ts";
import { POLICY_PURPOSE, policyBridgeTable, policyTable } from "../plugins/lib/ruleset/policy_tables.ts";
import type { TableDefinition } from "../plugins/lib/ruleset/table.ts";
import { ElementInUseError, type WantedElement } from "../plugins/lib/ruleset/wanted_elements.ts";

/** What a table had of pods, also after somebody has removed the table or some of it: no DEL has. */
class Remembered<T extends AttachedAddress> {
  #table: bigint | undefined;
  #known: readonly T[] = [];
  readonly lost = new Map<Ip, T>();

  get known(): readonly T[] {
    return this.#known;
  }

  /** @returns whether what is gone since the last look went by DELs */
  note(present: readonly T[], table: bigint | undefined, listRecorded: () => readonly Owner[]): boolean {
    const isSame = table === this.#table;
    const ips = new Set(present.map(({ ip }) => ip));
    const gone = this.#known.filter(({ ip }) => !ips.has(ip));
    const isRecorded = isSame && gone.length > 0 ? isOneOfOwners(listRecorded()) : () => true;
    const lost = gone.filter(isRecorded);
    for (const each of lost) this.lost.set(each.ip, each);
    for (const ip of ips) this.lost.delete(ip);
    this.#table = table;
    this.#known = present;
    return isSame && lost.length === 0;
  }
}

/** A DEL that has found nothing in the guard removes the link before. */
const DEL_MS = 60_000;

export class Attachments {
  readonly #nft: Netlink;
  readonly #route: Netlink;
  readonly #guard = new Remembered<AttachedAddress>();
  readonly #ports = new Remembered<BridgedAddress>();
  /** The ruleset of the last look, and who was attached then. */
  #seen: { readonly generation: number; readonly attached: readonly AttachedAddress[] } | undefined;
  #isDamaged = false;
  /** A DEL that came while their guard was lost has found nothing. */
  readonly #restored = new Map<string, { readonly pod: AttachedAddress; readonly untilMs: number }>();

  constructor({ nft, route }: Netns) {
    this.#nft = nft;
    this.#route = route;
  }

  /** @returns `isWhole`: what DELs have removed is all that the kernel has lost since the last look */
  look(): { readonly attached: readonly AttachedAddress[]; readonly isWhole: boolean } {
    const generation = getGenerationId(this.#nft);
    const isWatching = this.#restored.size + this.#guard.lost.size + this.#ports.lost.size > 0;
    if (!isWatching && generation === this.#seen?.generation) return { attached: this.#seen.attached, isWhole: true };
    const hadEnded = this.#removeEnded();
    const { attached, table } = readGuard(this.#nft);
    const isSameGuard = this.#guard.note(attached, table, () => listRecordedPods(this.#nft, policyTable));
    const isSameBridge = this.#ports.note(
      listBridgedPods(this.#nft),
      findTable(this.#nft, policyBridgeTable)?.handle,
      () => listRecordedPods(this.#nft, policyBridgeTable),
    );
    const isEnded = this.#forgetEnded();
    this.#seen = { generation, attached };
    return {
      attached: [...attached, ...this.#guard.lost.values()],
      isWhole: isSameGuard && isSameBridge && !hadEnded && !isEnded,
    };
  }

  /** Call it when somebody has removed something of pods: nobody tells of which. */
  noteLoss(): void {
    this.#isDamaged = true;
  }

  /** Puts back the guard of pods that have their link. @returns whether it was lost */
  restore(): boolean {
    const listLost = <T extends AttachedAddress>({ known, lost }: Remembered<T>) =>
      groupByPod([...this.#isDamaged ? known : [], ...lost.values()]);
    let isRestored = this.#guard.lost.size + this.#ports.lost.size > 0;
    for (const pod of listLost(this.#guard)) {
      if (this.#restorePod(policyTable, pod[0], guardElements(guardedPod(pod)))) isRestored = true;
    }
    for (const pod of listLost(this.#ports)) {
      const own = link.find(this.#route, pod[0].interface)?.mac;
      if (own === undefined) continue;
      const port = { own, pod: pod[0].mac };
      const elements = bridgeGuardElements({ ...guardedPod(pod), port });
      if (this.#restorePod(policyBridgeTable, pod[0], elements)) isRestored = true;
    }
    this.#isDamaged = false;
    return isRestored;
  }

  /** @returns whether something was missing */
  #restorePod(table: TableDefinition, pod: AttachedAddress, elements: readonly WantedElement[]): boolean {
    try {
      if (restoreElements(this.#nft, table, pod, elements).length === 0) return false;
      this.#restored.set(ownerText(pod), { pod, untilMs: performance.now() + DEL_MS });
      return true;
    } catch (error) {
      // The address is that of a pod that has come meanwhile.
      if (!(error instanceof ElementInUseError)) throw error;
      return false;
    }
  }

  #hasLink({ interface: name }: AttachedAddress): boolean {
    return link.find(this.#route, name) !== undefined;
  }

  /** @returns whether a pod whose guard was put back has ended */
  #removeEnded(): boolean {
    const now = performance.now();
    let isEnded = false;
    for (const [key, { pod, untilMs }] of this.#restored) {
      if (now > untilMs) this.#restored.delete(key);
      if (this.#hasLink(pod)) continue;
      isEnded = true;
      for (const table of [policyTable, policyBridgeTable]) {
        removeElementsOf(this.#nft, table, POLICY_PURPOSE, pod);
      }
      this.#restored.delete(key);
    }
    return isEnded;
  }

  /** @returns whether a pod whose guard is lost has ended */
  #forgetEnded(): boolean {
    let isEnded = false;
    for (const { lost } of [this.#guard, this.#ports]) {
      for (const each of [...lost.values()]) {
        if (this.#hasLink(each)) continue;
        lost.delete(each.ip);
        isEnded = true;
      }
    }
    return isEnded;
  }
}

function groupByPod<T extends Owner>(addresses: readonly T[]): [T, ...T[]][] {
  return [...Map.groupBy(addresses, ownerText).values()] as [T, ...T[]][];
}

const guardedPod = (addresses: readonly AttachedAddress[]) => ({
  link: addresses[0]!.interface,
  ips: addresses.map(({ ip }) => ip),
});
