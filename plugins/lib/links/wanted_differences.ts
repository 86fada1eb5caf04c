/** How host and container differ from what a plugin wants: what CHECK and `cni doctor` tell. @module */
import type { Netns } from "../../../ffi/netns/netns.ts";
import * as address from "../../../ffi/route/address.ts";
import * as link from "../../../ffi/route/link.ts";
import { findSysctl, sysctlWord } from "../../../ffi/sys/sysctl.ts";
import type { Place, Wanted, WantedAddress, WantedLink, WantedSysctl } from "../model/wanted.ts";
import { checkFailedError } from "../protocol/check_failed.ts";

/** What a namespace has. Its reader may ask the kernel at each call. */
export interface PlaceState {
  findLink(name: string): link.Link | undefined;
  addressesOf(index: number): readonly address.InterfaceAddress[];
  /** `undefined` if the kernel lacks it. */
  sysctl(name: string): string | undefined;
}

export type WantedDifference =
  | { readonly kind: "link" | "down"; readonly wanted: WantedLink }
  | { readonly kind: "address"; readonly wanted: WantedAddress }
  | { readonly kind: "sysctl"; readonly wanted: WantedSysctl; readonly actual: string | undefined };

/** Of a link that is missing, nothing else is told. */
export function* wantedDifferences(
  { links = [], addresses = [], sysctls = [] }: Wanted,
  stateOf: (place: Place) => PlaceState,
): Generator<WantedDifference> {
  for (const wanted of links) {
    const device = stateOf(wanted.place).findLink(wanted.name);
    if (!device) yield { kind: "link", wanted };
    else if (!link.isUp(device)) yield { kind: "down", wanted };
  }
  for (const wanted of addresses) {
    const state = stateOf(wanted.place);
    const device = state.findLink(wanted.link);
    if (device && !state.addressesOf(device.index).some((found) => found.address === wanted.address)) {
      yield { kind: "address", wanted };
    }
  }
  for (const wanted of sysctls) {
    const actual = stateOf(wanted.place).sysctl(wanted.name);
    if (actual !== undefined && actual !== wanted.value) yield { kind: "sysctl", wanted, actual };
  }
}

/** `interface "svc0" is missing in the container` */
export function describeDifference(difference: WantedDifference): string {
  const where = difference.wanted.place === "host" ? "on the host" : "in the container";
  switch (difference.kind) {
    case "link":
      return `interface "${difference.wanted.name}" is missing ${where}`;
    case "down":
      return `interface "${difference.wanted.name}" ${where} is down`;
    case "address":
      return `"${difference.wanted.link}" ${where} lacks address ${difference.wanted.address}`;
    case "sysctl": {
      const { name, value } = difference.wanted;
      return `${sysctlWord(name)} ${where} is ${difference.actual}, expected ${value}`;
    }
  }
}

/** For CHECK. @throws {CniError} on the first difference */
export function checkWanted({ host, netns }: { readonly host: Netns; readonly netns: Netns }, wanted: Wanted): void {
  const stateOf = (place: Place) => readPlace(place === "host" ? host : netns);
  for (const difference of wantedDifferences(wanted, stateOf)) throw checkFailedError(describeDifference(difference));
}

function readPlace(netns: Netns): PlaceState {
  return {
    findLink: (name) => link.find(netns.route, name),
    addressesOf: (index) => address.list(netns.route, { index }),
    sysctl: (name) => netns.run(() => findSysctl(name)),
  };
}
