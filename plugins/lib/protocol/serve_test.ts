import { expect, test } from "bun:test";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { runInNetns } from "../../../testing/netns.ts";
import * as link from "../../../ffi/route/link.ts";
import { anything } from "../../../spec/schema.ts";
import { plugin } from "./plugin.ts";
import { invokePlugin, newHostContext, newRequest } from "../../../testing/plugin_call.ts";
import { sandboxTest } from "../../../testing/sandbox.ts";

sandboxTest("serve() undoes a failed ADD while the container's namespace is still open", [], ({ call, container }) => {
  const failing = plugin({
    name: "failing",
    about: "Sets an MTU and fails",
    config: anything,
    add({ netns, undo }) {
      undo.defer(() => link.set(netns.route, "lo", { mtu: 65536 }));
      link.set(netns.route, "lo", { mtu: 1400 });
      throw new Error("Cannot go on: this is a test");
    },
    del() {},
    check() {},
  });
  expect(() => call(failing, "ADD", {})).toThrow(/^Cannot go on: this is a test$/);
  expect(JSON.parse(runInNetns(container, "ip", "-j", "link", "show", "lo"))[0].mtu).toBe(65536);
});

test("serve() tells a GC when its list was made, and the IPAM plugin the same, however long the first one takes", () => {
  const told: bigint[] = [];
  const nothing = { config: anything, add: () => ({}), del() {}, check() {} };
  const outer = plugin({
    ...nothing,
    name: "outer",
    about: "Takes its time before it calls its IPAM plugin",
    gc({ snapshotTime, ipam }) {
      told.push(snapshotTime);
      Bun.sleepSync(5);
      ipam!.gc();
    },
  });
  const inner = plugin({
    ...nothing,
    name: "inner",
    about: "Notes when the list was made",
    gc: ({ snapshotTime }) => void told.push(snapshotTime),
  });
  const context = newHostContext({ host: { identity: "host" } as Netns, findPlugin: () => inner });
  const request = newRequest("outer", "GC", { ipam: { type: "inner" }, "cni.dev/valid-attachments": [] });
  const before = BigInt(Date.now()) * 1_000_000n;
  for (const each of [request, { ...request, snapshotTime: 7n }]) {
    invokePlugin(outer, each, context);
  }
  expect(Number(told[0]! - before)).toBeWithin(0, 1e9);
  expect(told).toEqual([told[0]!, told[0]!, 7n, 7n]);
});
