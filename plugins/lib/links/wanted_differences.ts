/** How host and container differ from what a plugin wants: what CHECK, `cni doctor` and the server's heal tell. @module */
import { familyOf } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import * as address from "../../../ffi/route/address.ts";
import * as link from "../../../ffi/route/link.ts";
import { isSameSysctlValue, readSysctl, sysctlWord } from "../../../ffi/sys/sysctl.ts";
import type { Place, Wanted, WantedAddress, WantedLink, WantedSetting, WantedSysctl } from "../model/wanted.ts";
import { checkFailedError, formatValue } from "../protocol/check_failed.ts";

/** What a namespace has. Its reader may ask the kernel at each call. */
export interface PlaceState {
  findLink(name: string): link.Link | undefined;
  addressesOf(index: number): readonly address.InterfaceAddress[];
  /** `undefined` if the kernel lacks it or does not show it. */
  sysctl(name: string): string | undefined;
}

export type WantedDifference =
  | { readonly kind: "link" | "down" | "master"; readonly wanted: WantedLink }
  | {
    readonly kind: "setting";
    readonly wanted: WantedLink;
    readonly setting: WantedSetting;
    readonly actual: unknown;
  }
  | { readonly kind: "address"; readonly wanted: WantedAddress }
  | { readonly kind: "sysctl"; readonly wanted: WantedSysctl; readonly actual: string | undefined };

/** Where a link is missing, nothing else is told: the rest would be consequences. */
export function* wantedDifferences(
  { links = [], addresses = [], sysctls = [] }: Wanted,
  stateOf: (place: Place) => PlaceState,
): Generator<WantedDifference> {
  const found = links.map((wanted) => ({ wanted, device: findWanted(stateOf(wanted.place), wanted) }));
  const missing = found.filter(({ device }) => !device);
  for (const { wanted } of missing) yield { kind: "link", wanted };
  if (missing.length > 0) return;
  for (const { wanted, device } of found) yield* linkDifferences(stateOf(wanted.place), wanted, device!);
  for (const wanted of addresses) {
    const state = stateOf(wanted.place);
    const device = state.findLink(wanted.link);
    // A link that is down has no IPv6 address.
    if (!device || (familyOf(wanted.address) === 6 && !link.isUp(device))) continue;
    if (!state.addressesOf(device.index).some((present) => present.address === wanted.address)) {
      yield { kind: "address", wanted };
    }
  }
  for (const wanted of sysctls) {
    const actual = stateOf(wanted.place).sysctl(wanted.name);
    if (actual === undefined || !isSameSysctlValue(actual, wanted.value)) yield { kind: "sysctl", wanted, actual };
  }
}

function findWanted(state: PlaceState, { name, kind }: WantedLink): link.Link | undefined {
  const device = state.findLink(name);
  return kind === undefined || device?.info?.kind === kind ? device : undefined;
}

function* linkDifferences(state: PlaceState, wanted: WantedLink, device: link.Link): Generator<WantedDifference> {
  const { mayBeDown, master, settings = [] } = wanted;
  if (!mayBeDown && !link.isUp(device)) yield { kind: "down", wanted };
  if (master !== undefined && (device.master === undefined || state.findLink(master)?.index !== device.master)) {
    yield { kind: "master", wanted };
  }
  for (const setting of settings) {
    const actual = setting.read(device);
    if (actual !== setting.value) yield { kind: "setting", wanted, setting, actual };
  }
}

/** `interface "svc0" is missing in the container` */
export function describeDifference(difference: WantedDifference): string {
  const { wanted } = difference;
  const where = wanted.place === "host" ? "" : " in the container";
  switch (difference.kind) {
    case "link":
      return `${describeLink(difference.wanted)} is missing${where}`;
    case "down":
      return `${describeLink(difference.wanted)}${where} is down`;
    case "master":
      return `${describeLink(difference.wanted)}${where} is no port of "${difference.wanted.master}"`;
    case "setting": {
      const { setting: { name, value }, actual } = difference;
      return `${name} of "${difference.wanted.name}"${where} is ${formatValue(actual)}, expected ${formatValue(value)}`;
    }
    case "address": {
      const { address, link, isGateway } = difference.wanted;
      return `${isGateway ? "gateway " : ""}address ${address} is missing on "${link}"${where}`;
    }
    case "sysctl": {
      const { name, value } = difference.wanted;
      return `${sysctlWord(name)}${where} is ${difference.actual ?? "missing"}, expected ${value}`;
    }
  }
}

const describeLink = ({ kind = "interface", name }: WantedLink): string => `${kind} "${name}"`;

/** For CHECK. @param known links that the caller has read already @throws {CniError} on the first difference */
export function checkWanted(
  { host, netns }: { readonly host: Netns; readonly netns: Netns },
  wanted: Wanted,
  known: { readonly [P in Place]?: readonly link.Link[] } = {},
): void {
  const states = { host: readPlace(host, known.host), container: readPlace(netns, known.container) };
  for (const difference of wantedDifferences(wanted, (place) => states[place])) {
    throw checkFailedError(describeDifference(difference));
  }
}

/** Asks the kernel once for each link, and for its addresses. */
function readPlace(netns: Netns, known: readonly link.Link[] = []): PlaceState {
  const links = new Map<string, link.Link | undefined>(known.map((device) => [device.name!, device]));
  const addresses = new Map<number, readonly address.InterfaceAddress[]>();
  return {
    findLink: (name) => links.has(name) ? links.get(name) : remember(links, name, link.find(netns.route, name)),
    addressesOf: (index) => addresses.get(index) ?? remember(addresses, index, address.list(netns.route, { index })),
    sysctl: (name) => netns.run(() => readSysctl(name)),
  };
}

function remember<K, V>(values: Map<K, V>, key: K, value: V): V {
  values.set(key, value);
  return value;
}
