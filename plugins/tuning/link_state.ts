import type { Netns } from "../../ffi/netns/netns.ts";
import * as link from "../../ffi/route/link.ts";
import { IFF_ALLMULTI, IFF_PROMISC } from "../../ffi/route/uapi.ts";
import { withPurpose } from "../../ffi/sys/error.ts";
import type { WantedSetting } from "../lib/model/wanted.ts";
import { boolean, type Infer, int, knownKeys, lazy, mac, optional } from "../../spec/schema.ts";

/** Keyed as in configuration and backup. */
export const linkStateSchema = lazy(() =>
  knownKeys({
    mac: optional(mac),
    promisc: optional(boolean),
    mtu: optional(int({ min: 0 })),
    allmulti: optional(boolean),
    txQLen: optional(int({ min: 0 })),
  })
);
export type LinkState = Infer<typeof linkStateSchema>;
type SettingKey = keyof LinkState;

interface Setting<T> {
  readonly name: string;
  read(device: link.Link): T | undefined;
  change(value: T): link.LinkIn;
  /** Words of `ip link set` that change it. */
  words(value: T): string[];
}

const flagSetting = (bit: number, word: string) => ({
  // The requested flag: a packet capture does not set it.
  read: (device: link.Link) => (device.flags & bit) !== 0,
  change: (on: boolean) => ({ flags: on ? bit : 0, change: bit }),
  words: (on: boolean) => [word, on ? "on" : "off"],
});

const numberWords = (word: string) => (value: number) => [word, `${value}`];

/** Links get their settings in this order. */
const SETTINGS: { readonly [K in SettingKey]-?: Setting<NonNullable<LinkState[K]>> } = {
  mac: {
    name: "MAC address",
    read: (device) => device.mac,
    change: (mac) => ({ mac }),
    words: (mac) => ["address", mac],
  },
  promisc: { name: "promiscuous mode", ...flagSetting(IFF_PROMISC, "promisc") },
  mtu: { name: "MTU", read: (device) => device.mtu, change: (mtu) => ({ mtu }), words: numberWords("mtu") },
  allmulti: { name: "reception of all multicast", ...flagSetting(IFF_ALLMULTI, "allmulticast") },
  txQLen: {
    name: "length of the transmit queue",
    read: (device) => device.txQLen,
    change: (txQLen) => ({ txQLen }),
    words: numberWords("txqueuelen"),
  },
};

export function hasSettings(state: LinkState): boolean {
  return settingKeys(state).length > 0;
}

export function readLinkState(device: link.Link, wanted: LinkState): LinkState {
  return Object.fromEntries(
    settingKeys(wanted).map((key) => [key, SETTINGS[key].read(device)]).filter(([, value]) => value !== undefined),
  );
}

export function setLinkState(netns: Netns, device: link.Link, wanted: LinkState): void {
  for (const key of settingKeys(wanted)) {
    const { name, read, change } = SETTINGS[key] as Setting<unknown>;
    const value = wanted[key];
    if (read(device) === value) continue;
    withPurpose(
      `set ${name} of "${device.name}" to ${value}`,
      () => link.set(netns.route, device.index, change(value)),
    );
  }
}

export function wantedSettings(state: LinkState): WantedSetting[] {
  return settingKeys(state).map((key) => {
    const { name, read, words } = SETTINGS[key] as Setting<unknown>;
    return { name, value: state[key], read, words: words(state[key]) };
  });
}

function settingKeys(state: LinkState): SettingKey[] {
  return (Object.keys(SETTINGS) as SettingKey[]).filter((key) => state[key] !== undefined);
}
