import { beforeEach, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { useDirectory } from "../../testing/directory.ts";
import type { Cidr } from "../../ffi/address.ts";
import { interceptSystemCalls } from "../../ffi/sys/intercept.ts";
import { loadDocumentedBuiltins } from "../documented_builtins.ts";
import { installNetworkFile, type NetworkFileOptions, prepareNetworkFile } from "./network_file.ts";

const root = useDirectory("cni-network-file-");
await loadDocumentedBuiltins();

const NODE_RANGES = ["10.244.3.0/24", "fd44::/64"] as Cidr[];
const WITHOUT_RANGES = { type: "bridge", isDefaultGateway: true, ipam: { type: "host-local" } };
const RANGES = [[{ subnet: "10.1.0.0/24" }]];

let home = "";
let directory = "";
const logged: string[] = [];
beforeEach(() => {
  home = mkdtempSync(join(root, "home-"));
  directory = join(home, "net.d");
  logged.length = 0;
});

const listText = (...plugins: object[]) => JSON.stringify({ cniVersion: "1.0.0", name: "pods", plugins });

async function put(text: string, name = "10-pods.conflist", options: Partial<NetworkFileOptions> = {}) {
  const source = join(home, name);
  writeFileSync(source, text);
  const log = (message: string) => void logged.push(message);
  const prepared = await prepareNetworkFile({ source, directory, pluginDirectories: [], log, ...options });
  return { path: prepared.path, isChanged: installNetworkFile(prepared) };
}

test("a file is copied as it is, where all can read it, and written only when it changes", async () => {
  const text = `${listText({ ...WITHOUT_RANGES, ipam: { type: "host-local", ranges: RANGES } })}\n\n`;
  const path = join(directory, "10-pods.conflist");
  expect(await put(text)).toEqual({ path, isChanged: true });
  expect(readFileSync(path, "utf8")).toBe(text);
  expect(statSync(path).mode & 0o777).toBe(0o644);
  const { ino } = statSync(path);
  expect(await put(text)).toEqual({ path, isChanged: false });
  expect(statSync(path).ino).toBe(ino);
  expect(await put(text.trim())).toEqual({ path, isChanged: true });
  expect(readdirSync(directory)).toEqual(["10-pods.conflist"]);
  expect(logged).toEqual([]);
});

test("comments are left out: engines could not read the file", async () => {
  const { path } = await put(`// for the shop\n${listText({ type: "loopback" })}`);
  expect(JSON.parse(readFileSync(path, "utf8"))).toEqual(JSON.parse(listText({ type: "loopback" })));
  expect(logged).toEqual([]);
});

test("a file is on the disk before it gets its name: a power cut leaves no broken one", async () => {
  const calls: string[] = [];
  using _calls = interceptSystemCalls(["fsync", "rename"], (name, args, call) => {
    calls.push(name);
    return call(...args);
  });
  const { path } = await put(listText({ type: "loopback" }));
  expect(calls).toEqual(["fsync", "rename"]);
  expect(existsSync(path)).toBe(true);
});

test("a host-local without ranges gets those of the node, and nothing else changes", async () => {
  const other = { type: "portmap", capabilities: { portMappings: true } };
  const { path } = await put(listText(WITHOUT_RANGES, other), undefined, {
    findRanges: () => Promise.resolve(NODE_RANGES),
  });
  expect(JSON.parse(readFileSync(path, "utf8"))).toEqual({
    cniVersion: "1.0.0",
    name: "pods",
    plugins: [
      { ...WITHOUT_RANGES, ipam: { type: "host-local", ranges: NODE_RANGES.map((subnet) => [{ subnet }]) } },
      other,
    ],
  });
});

test("nobody is asked for ranges if all are there", async () => {
  const findRanges = () => Promise.reject(new Error("asked"));
  const subnet = { ...WITHOUT_RANGES, ipam: { type: "host-local", subnet: "10.1.0.0/24" } };
  expect(await put(listText(subnet), undefined, { findRanges })).toMatchObject({ isChanged: true });
});

test.each([
  ["no ranges", listText(WITHOUT_RANGES), "10-pods.conflist", 'plugins[0].ipam has no "ranges"'],
  ["another ending", listText({ type: "loopback" }), "10-pods.conf", 'its name must end with ".conflist"'],
  [
    "a wrong value",
    listText({ type: "loopback" }, { type: "bridge", mtu: "big" }),
    "10-pods.conflist",
    "plugins[1].mtu",
  ],
  [
    "a wrong value beside missing ranges",
    listText({ ...WITHOUT_RANGES, ipam: { type: "host-local", dataDir: 5 } }),
    "10-pods.conflist",
    "plugins[0].ipam.dataDir",
  ],
  ["no JSON", "{", "10-pods.conflist", "10-pods.conflist"],
])("a file with %s is refused, and nothing is written", async (_, text, name, message) => {
  await expect(put(text, name)).rejects.toThrow(message);
  expect(existsSync(directory)).toBe(false);
});

test("a second file of the same network is refused: engines would use the first", async () => {
  const text = listText({ type: "loopback" });
  await put(text);
  await expect(put(text, "05-pods.conflist")).rejects.toThrow(
    `"${directory}/10-pods.conflist" has a network "pods" too`,
  );
  expect(readdirSync(directory)).toEqual(["10-pods.conflist"]);
});

test("what is probably a mistake is logged with its place", async () => {
  await put(listText({ type: "bridge", isGatway: true }));
  expect(logged).toContainEqual(expect.stringMatching(/10-pods\.conflist:1:\d+: plugins\[0\]\.isGatway is not read$/));
});
