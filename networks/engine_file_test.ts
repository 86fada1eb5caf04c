import { beforeEach, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { useDirectory } from "../testing/directory.ts";
import type { Cidr } from "../ffi/address.ts";
import { interceptSystemCalls } from "../ffi/sys/intercept.ts";
import { loadDocumentedBuiltins } from "../cmd/documented_builtins.ts";
import { installNetworkFile, type NetworkFileOptions, prepareNetworkFile } from "./engine_file.ts";

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

function put(text: string, name = "10-pods.conflist", options: Partial<NetworkFileOptions> = {}) {
  const source = join(home, name);
  const log = (message: string) => void logged.push(message);
  const prepared = prepareNetworkFile({ source, text, directory, pluginDirectories: [], log, ...options });
  return { path: prepared.path, isChanged: installNetworkFile(prepared) };
}

test("a file is copied as it is, where all can read it, and written only when it changes", () => {
  const text = `${listText({ ...WITHOUT_RANGES, ipam: { type: "host-local", ranges: RANGES } })}\n\n`;
  const path = join(directory, "10-pods.conflist");
  expect(put(text)).toEqual({ path, isChanged: true });
  expect(readFileSync(path, "utf8")).toBe(text);
  expect(statSync(path).mode & 0o777).toBe(0o644);
  const { ino } = statSync(path);
  expect(put(text)).toEqual({ path, isChanged: false });
  expect(statSync(path).ino).toBe(ino);
  expect(put(text.trim())).toEqual({ path, isChanged: true });
  expect(readdirSync(directory)).toEqual(["10-pods.conflist"]);
  expect(logged).toEqual([]);
});

test("comments are left out: engines could not read the file", () => {
  const { path } = put(`// for the shop\n${listText({ type: "loopback" })}`);
  expect(JSON.parse(readFileSync(path, "utf8"))).toEqual(JSON.parse(listText({ type: "loopback" })));
  expect(logged).toEqual([]);
});

test("a file is on the disk before it gets its name: a power cut leaves no broken one", () => {
  const calls: string[] = [];
  using _calls = interceptSystemCalls(["fsync", "rename"], (name, args, call) => {
    calls.push(name);
    return call(...args);
  });
  const { path } = put(listText({ type: "loopback" }));
  expect(calls).toEqual(["fsync", "rename"]);
  expect(existsSync(path)).toBe(true);
});

test("a host-local without ranges gets those of the node, and nothing else changes", () => {
  const other = { type: "portmap", capabilities: { portMappings: true } };
  const { path } = put(listText(WITHOUT_RANGES, other), undefined, { ranges: NODE_RANGES });
  expect(JSON.parse(readFileSync(path, "utf8"))).toEqual({
    cniVersion: "1.0.0",
    name: "pods",
    plugins: [
      { ...WITHOUT_RANGES, ipam: { type: "host-local", ranges: NODE_RANGES.map((subnet) => [{ subnet }]) } },
      other,
    ],
  });
});

test("a plugin that makes no default route gets one for each family of the node, unless it has routes", () => {
  const ipamOf = (own: object, ipam: object) => {
    const text = listText({ type: "ptp", ...own, ipam: { type: "host-local", ...ipam } });
    const { path } = put(text, undefined, { ranges: NODE_RANGES });
    return JSON.parse(readFileSync(path, "utf8")).plugins[0].ipam;
  };
  expect(ipamOf({}, {}).routes).toEqual([{ dst: "0.0.0.0/0" }, { dst: "::/0" }]);
  const routes = [{ dst: "10.0.0.0/8" }];
  expect(ipamOf({}, { routes }).routes).toEqual(routes);
});

test("ranges that the file has stay", () => {
  const subnet = { ...WITHOUT_RANGES, ipam: { type: "host-local", subnet: "10.1.0.0/24" } };
  const { path } = put(listText(subnet), undefined, { ranges: NODE_RANGES });
  expect(JSON.parse(readFileSync(path, "utf8")).plugins).toEqual([subnet]);
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
])("a file with %s is refused, and nothing is written", (_, text, name, message) => {
  expect(() => put(text, name)).toThrow(message);
  expect(existsSync(directory)).toBe(false);
});

test("a second file of the same network is refused: engines would use the first", () => {
  const text = listText({ type: "loopback" });
  put(text);
  expect(() => put(text, "05-pods.conflist")).toThrow(
    `"${directory}/10-pods.conflist" has a network "pods" too`,
  );
  expect(readdirSync(directory)).toEqual(["10-pods.conflist"]);
});

test("what is probably a mistake is logged with its place", () => {
  put(listText({ type: "bridge", isGatway: true }));
  expect(logged).toContainEqual(expect.stringMatching(/10-pods\.conflist:1:\d+: plugins\[0\]\.isGatway is not read$/));
});

test("the MTU of a node goes to the plugin that makes the interface, unless the file has one", () => {
  const mtusOf = (own: object) => {
    const text = listText({ ...WITHOUT_RANGES, ...own }, { type: "portmap" });
    const { path } = put(text, "10-pods.conflist", { mtu: 1450, ranges: NODE_RANGES });
    return JSON.parse(readFileSync(path, "utf8")).plugins.map(({ mtu }: { mtu?: number }) => mtu);
  };
  expect(mtusOf({})).toEqual([1450, undefined]);
  expect(mtusOf({ mtu: 1400 })).toEqual([1400, undefined]);
});
