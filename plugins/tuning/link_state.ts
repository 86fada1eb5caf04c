/**
 * What `tuning` changes on a link: read, set, put back, compared.
 *
 * @module
 */
import type { Mac } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns.ts";
import { withRequestPurpose } from "../../ffi/netlink/error.ts";
import * as link from "../../ffi/route/link.ts";
import { IFF_ALLMULTI, IFF_PROMISC } from "../../ffi/route/uapi.ts";

/** Some of a link's settings, under the names that configuration and state files have for them. */
export interface LinkState {
  readonly mac?: Mac;
  readonly promisc?: boolean;
  readonly mtu?: number;
  readonly allmulti?: boolean;
  readonly txQLen?: number;
}
type SettingKey = keyof LinkState;

interface Setting<T> {
  readonly name: string;
  read(device: link.Link): T | undefined;
  change(value: T): link.LinkIn;
}

const flagSetting = (bit: number) => ({
  // As somebody asked for it: what looks at packets for a while does not show here.
  read: (device: link.Link) => (device.flags & bit) !== 0,
  change: (on: boolean) => ({ flags: on ? bit : 0, change: bit }),
});

/** In the order in which they are set. */
const SETTINGS: { readonly [K in SettingKey]-?: Setting<NonNullable<LinkState[K]>> } = {
  mac: { name: "MAC address", read: (device) => device.mac, change: (mac) => ({ mac }) },
  promisc: { name: "promiscuous mode", ...flagSetting(IFF_PROMISC) },
  mtu: { name: "MTU", read: (device) => device.mtu, change: (mtu) => ({ mtu }) },
  allmulti: { name: "reception of all multicast", ...flagSetting(IFF_ALLMULTI) },
  txQLen: { name: "length of the transmit queue", read: (device) => device.txQLen, change: (txQLen) => ({ txQLen }) },
};

/** True if there is anything to set. */
export function hasSettings(state: LinkState): boolean {
  return settingKeys(state).length > 0;
}

/** How those settings are that `wanted` has; without what such a link does not have. */
export function readLinkState(device: link.Link, wanted: LinkState): LinkState {
  return Object.fromEntries(
    settingKeys(wanted).map((key) => [key, SETTINGS[key].read(device)]).filter(([, value]) => value !== undefined),
  );
}

/** Makes a link like this; what is so already in `device` is not touched. @throws {NetlinkError} naming what the kernel refused */
export function setLinkState(netns: Netns, device: link.Link, wanted: LinkState): void {
  for (const key of settingKeys(wanted)) {
    const { name, read, change } = SETTINGS[key] as Setting<unknown>;
    const value = wanted[key];
    if (read(device) === value) continue;
    withRequestPurpose(
      () => `set ${name} of "${device.name}" to ${value}`,
      () => link.set(netns.route, device.index, change(value)),
    );
  }
}

/** Calls `differs` for each setting that is not as wanted. */
export function compareLinkState(
  device: link.Link,
  wanted: LinkState,
  onDifference: (name: string, actual: unknown, wanted: unknown) => void,
): void {
  for (const key of settingKeys(wanted)) {
    const { name, read } = SETTINGS[key];
    const actual = read(device);
    if (actual !== wanted[key]) onDifference(name, actual, wanted[key]);
  }
}

function settingKeys(state: LinkState): SettingKey[] {
  return (Object.keys(SETTINGS) as SettingKey[]).filter((key) => state[key] !== undefined);
}
