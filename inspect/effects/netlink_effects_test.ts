import { expect, test } from "bun:test";
import { IFF_UP } from "../../ffi/route/uapi.ts";
import type { ObservedRequest } from "../../ffi/sys/observer.ts";
import { type Effect, newEffectList } from "./effect.ts";
import { addNetlinkEffects, newLinkNames } from "./netlink_effects.ts";

/** What is told of requests of one socket. */
function effectsOf(requests: readonly ObservedRequest[]): readonly Effect[] {
  using names = newLinkNames();
  const effects = newEffectList(() => undefined, () => false);
  const state = {
    effects,
    names,
    labelOf: () => "host",
    groups: new Map(),
    removed: new Set<string>(),
    moved: new Map(),
  };
  addNetlinkEffects(state, {
    kind: "requests",
    socket: {},
    netns: "",
    requests,
    hasOneReply: false,
    onMessage: () => {},
  }, undefined);
  return effects.effects;
}

test("a deleted connection is told with its addresses and port", () => {
  // Two connections of one client.
  const requests = [40_000, 40_001].map((sourcePort) => ({
    op: { name: "IPCTNL_MSG_CT_DELETE", type: 0x102 },
    value: {
      family: 2,
      original: {
        ip: { source4: "192.0.2.7", destination4: "192.0.2.1" },
        protocol: { number: 17, sourcePort, destinationPort: 53 },
      },
    },
  }));
  expect(effectsOf(requests).map(({ kind, sentence }) => `${kind}: ${sentence}`)).toEqual([
    "conntrack: forget connections of 192.0.2.7 to 192.0.2.1 53/udp in host",
  ]);
});

test("a change of flags is told by its meaning, whatever else changes", () => {
  const changes = [
    { mtu: 1400, flags: IFF_UP, change: IFF_UP },
    { flags: 0, change: IFF_UP, alias: "flags=1 change=1" },
  ];
  const requests = changes.map((value) => ({
    op: { name: "RTM_NEWLINK", type: 16 },
    value: { name: "no0", ...value },
  }));
  expect(effectsOf(requests).map(({ sentence }) => sentence)).toEqual([
    'change link "no0" in host: up name=no0 mtu=1400',
    'change link "no0" in host: down name=no0 alias="flags=1 change=1"',
  ]);
});
