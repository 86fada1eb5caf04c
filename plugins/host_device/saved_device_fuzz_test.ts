/** What is remembered of devices, as somebody else may have written it or put it there. */
import { removeWithTemporary } from "../../ffi/sys/atomic_file.ts";
import { writeState } from "../lib/protocol/state_file.ts";
import { beforeEach, expect, test } from "bun:test";
import fc from "fast-check";
import { lstatSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { useDirectory } from "../../testing/directory.ts";
import { checkProperty, outcomeOf } from "../../testing/fuzz.ts";
import { findSavedDevice, isLinkName, listSavedDevices, type SavedDevice, savedDevicePath } from "./saved_device.ts";

const root = useDirectory("cni-saved-");
const dataDir = join(root, "host-device");
const path = savedDevicePath(dataDir, { containerId: "c1", ifname: "net1" });
const said: string[] = [];
const log = (message: string) => void said.push(message);
beforeEach(() => {
  rmSync(dataDir, { recursive: true, force: true });
  mkdirSync(dataDir);
  said.splice(0);
});

const SAVED = {
  owner: { network: "net", containerID: "c1", ifname: "net1" },
  netns: { path: "/run/netns/c1", identity: "4:1" },
  before: { name: "nic0", isUp: true, mtu: 1500, txQLen: 1000, mac: "0a:00:00:00:00:01", alias: "uplink" },
  inside: 7,
} as SavedDevice;

test("a device is read as it was written, by its owner alone", () => {
  writeState(path, SAVED);
  expect(findSavedDevice(path, log)).toEqual(SAVED);
  expect(lstatSync(path).mode & 0o777).toBe(0o600);
  expect(listSavedDevices(dataDir, log)).toEqual([[path, SAVED]]);
});

test.each([
  ["before", { ...SAVED.before, name: "../eth0" }],
  ["before", { ...SAVED.before, name: "eth%d" }],
  ["before", { ...SAVED.before, alias: "a\0b" }],
  ["netns", { path: "/run/netns/c1\0", identity: "4:1" }],
  ["owner", { ...SAVED.owner, ifname: "a/b" }],
])("a file with another %s is not believed: %j", (key, value) => {
  writeFileSync(path, JSON.stringify({ ...SAVED, [key]: value }));
  expect(findSavedDevice(path, log)).toBeUndefined();
  expect(said.join()).toContain(`Cannot use "${path}"`);
});

test("a link in the place of a file is not followed, and is replaced and removed like one", () => {
  const target = join(root, "target");
  writeFileSync(target, JSON.stringify(SAVED));
  for (const take of [() => writeState(path, SAVED), () => removeWithTemporary(path, () => {})]) {
    rmSync(path, { force: true });
    symlinkSync(target, path);
    expect(findSavedDevice(path, log)).toBeUndefined();
    expect(listSavedDevices(dataDir, log)).toEqual([]);
    take();
    expect(lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink()).not.toBe(true);
    expect(readFileSync(target, "utf8")).toBe(JSON.stringify(SAVED));
  }
});

const whole = JSON.stringify(SAVED);
const text = fc.oneof(
  fc.string({ unit: "binary" }),
  fc.json(),
  fc.tuple(fc.nat(whole.length), fc.string({ maxLength: 3, unit: "binary-ascii" })).map(([at, word]) =>
    whole.slice(0, at) + word + whole.slice(at + 1)
  ),
  fc.record({ name: fc.string({ unit: "binary" }), alias: fc.string({ unit: "binary" }) }).map((before) =>
    JSON.stringify({ ...SAVED, before: { ...SAVED.before, ...before } })
  ),
);

test("whatever a file holds, there is a device that can have that name, or none", () => {
  checkProperty(
    fc.property(text, (content) => {
      writeFileSync(path, content);
      const found = outcomeOf(() => findSavedDevice(path, log));
      if ("error" in found) throw found.error;
      if (!found.value) return;
      const { before, netns, owner } = found.value;
      expect([before.name, owner.ifname].filter((name) => !isLinkName(name))).toEqual([]);
      expect([before.alias ?? "", netns.path].filter((each) => each.includes("\0"))).toEqual([]);
    }),
    400,
  );
});
