/**
 * Compares what an index answers with what the directory holds.
 *
 * @module
 */
import { expect } from "bun:test";
import { type Ip, nextIp, parseIp } from "../ffi/address.ts";
import type { Attachment } from "../spec/plugin_config.ts";
import { openIndex } from "../plugins/host_local/reservation_index.ts";
import { addressesHeldBy, formatHolder, readInventory } from "../plugins/host_local/inventory.ts";
import { lockStore } from "../plugins/host_local/reservation_store.ts";

/** Asks about everything there is, and about every address from `first` on, `count` of them. */
export function expectIndexMatchesDirectory(directory: string, first: string, count: number): void {
  using store = lockStore(directory, () => {});
  const inventory = readInventory(directory);
  const attachments = new Map<string, Attachment>();
  for (const holder of inventory.holders.values()) {
    if (holder) attachments.set(formatHolder(holder), { ...holder, ifname: holder.ifname ?? "eth0" });
  }
  for (const attachment of attachments.values()) {
    const held = store.findByAttachment(attachment).map(({ address }) => address).sort();
    expect(held).toEqual(addressesHeldBy(inventory, attachment).sort());
  }
  expect(store.findByAttachment({ containerId: "nobody", ifname: "eth0" })).toEqual([]);
  const all: Ip[] = [parseIp(first)];
  for (let i = 1; i < count; i++) all.push(nextIp(all.at(-1)!)!);
  expect(all.filter(store.isAllocated)).toEqual(all.filter((candidate) => inventory.holders.has(candidate)));
  const beyond = nextIp(all.at(-1)!);
  for (const [i, candidate] of all.entries()) {
    const free = all.slice(i).find((nextAddress) => !inventory.holders.has(nextAddress)) ?? beyond;
    expect(store.findFree(candidate)).toBe(free);
  }
}

/** Whether the next call needs no list of the directory. */
export function isIndexCurrent(directory: string): boolean {
  using index = openIndex(directory);
  return index !== undefined;
}
