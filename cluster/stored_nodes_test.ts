import { expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseCidr, parseIp } from "../ffi/address.ts";
import { useDirectory } from "../testing/directory.ts";
import { until } from "../testing/netns.ts";
import type { ClusterNode } from "./node.ts";
import { StoredNodes } from "./stored_nodes.ts";

const root = useDirectory("cni-stored-nodes-");
const NODE: ClusterNode = {
  uid: "u1",
  name: "a",
  createdAtMs: 1_700_000_000_000,
  addresses: [parseIp("192.0.2.1"), parseIp("2001:db8::1")],
  podCidrs: [parseCidr("10.244.1.0/24"), parseCidr("fd00:1::/64")],
};

/** A file of its own, in a directory that is not there yet. */
function scene(name: string) {
  const log: string[] = [];
  const path = join(root, name, "nodes.json");
  const content = { resourceVersion: "7", nodes: [NODE] };
  const open = (delayMs = 5) =>
    // What KnownNodes tells can be read once.
    new StoredNodes({
      path,
      content: () => ({ ...content, nodes: content.nodes.values() }),
      log: (message) => log.push(message),
      delayMs,
    });
  return { log, path, content, open };
}

test("nodes are stored a moment after a change, and read by another process", async () => {
  const { path, open, log } = scene("first");
  using stored = open();
  expect(stored.read()).toBeUndefined();
  stored.change();
  await until(() => readdirSync(root).includes("first") && readdirSync(join(root, "first")).includes("nodes.json"));
  expect(open().read()).toEqual({ resourceVersion: "7", nodes: [NODE] });
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(readdirSync(join(root, "first"))).toEqual(["nodes.json"]);
  expect(log).toEqual([]);
});

test("many changes are one write, and nodes that are stored already are none", async () => {
  const { path, content, open } = scene("few");
  {
    using stored = open(1_000_000);
    for (let count = 0; count < 100; count++) stored.change();
  }
  const { ino } = statSync(path);
  content.resourceVersion = "8";
  using stored = open();
  stored.read();
  stored.change();
  await Bun.sleep(50);
  expect(statSync(path).ino).toBe(ino);
  content.nodes = [{ ...NODE, addresses: [] }];
  stored.change();
  await until(() => statSync(path).ino !== ino);
  expect(open().read()).toEqual({ resourceVersion: "8", nodes: [{ ...NODE, addresses: [] }] });
});

test("a damaged file, or one of a newer program, is told and ignored, and replaced by the next change", () => {
  const { path, open, log } = scene("damaged");
  mkdirSync(join(root, "damaged"));
  const good = JSON.stringify({ version: 1, resourceVersion: "7", nodes: [NODE] });
  const problems: readonly [string, string][] = [
    [good.slice(0, -20), `Cannot use "${path}", continuing without: Cannot parse ${path}:`],
    ["", `Cannot use "${path}", continuing without: Cannot parse ${path}:`],
    ["\0".repeat(500), `Cannot use "${path}", continuing without: Cannot parse ${path}:`],
    [good.replace("192.0.2.1", "192.0.2"), `Cannot use "${path}", continuing without: `],
    [good.replace('"version":1', '"version":2'), `Cannot use "${path}": its format is of version 2`],
  ];
  for (const [text, problem] of problems) {
    writeFileSync(path, text);
    log.length = 0;
    {
      using stored = open();
      expect(stored.read()).toBeUndefined();
      expect(log).toEqual([expect.stringContaining(problem)]);
      stored.change();
    }
    expect(JSON.parse(readFileSync(path, "utf8"))).toMatchObject({ version: 1, nodes: [{ uid: "u1" }] });
  }
});

test("a file that cannot be written is told once, and written later", async () => {
  const { open, log } = scene("blocked");
  writeFileSync(join(root, "blocked"), "in the way");
  using stored = open();
  for (let count = 0; count < 2; count++) {
    stored.change();
    await Bun.sleep(20);
  }
  expect(log).toEqual([
    expect.stringMatching(/^Cannot write ".*": .*; after a reboot, routes to other nodes wait for the API$/),
  ]);
  rmSync(join(root, "blocked"));
  stored.change();
  await until(() => open().read() !== undefined);
});
