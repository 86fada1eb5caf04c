/** What somebody put into the state directory in the place of files and directories of ours: nothing is done through it, and DEL goes on. */
import { beforeEach, expect, test } from "bun:test";
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { EIO } from "../ffi/sys/errno.ts";
import { SystemError } from "../ffi/sys/error.ts";
import { interceptSystemCalls } from "../ffi/sys/intercept.ts";
import { useDirectory } from "../testing/directory.ts";
import { PLANTED_KINDS, type PlantedKind, plantPath } from "../testing/planted_paths.ts";
import { parseNetworkConfigList } from "../spec/network_config_list.ts";
import { type AnswerAsProgram, newRuntimeContext } from "../testing/plugin_call.ts";
import { listCacheEntries } from "./cache.ts";
import { gcNetworkList } from "./gc.ts";
import { addNetworkList, type AddRuntimeConf } from "./add.ts";
import { checkNetworkList } from "./check.ts";
import { delNetworkList } from "./del.ts";

const root = useDirectory("cni-planted-");
const directory = join(root, "cache");
const outside = join(root, "outside");
const file = join(directory, "results/web-c1-eth0");

const calls: string[] = [];
const said: string[] = [];
let valid: unknown;
const programs: AnswerAsProgram = (_type, { command, stdin }) => {
  calls.push(command);
  if (command === "GC") valid = JSON.parse(stdin)["cni.dev/valid-attachments"];
  return { exitCode: 0, stdout: command === "ADD" ? "{}" : "" };
};
const runtime = newRuntimeContext({ programs, pluginDirectories: ["/bin"], cacheDirectory: directory, log: said });
/** Its ADD removes nothing before. */
const withoutRollback = { ...runtime, rollback: false };
const list = parseNetworkConfigList(JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins: [{ type: "a" }] }));
const where: AddRuntimeConf = { containerId: "c1", ifname: "eth0", netns: "/run/netns/x" };

/** An entry of the very attachment, so that whoever follows a link would believe it. */
const ENTRY = JSON.stringify({
  kind: "cniCacheV1",
  containerId: "c1",
  networkName: "web",
  ifName: "eth0",
  config: btoa(JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins: [{ type: "planted" }] })),
  result: { cniVersion: "1.1.0", interfaces: [] },
});

beforeEach(() => {
  for (const path of [directory, outside]) rmSync(path, { recursive: true, force: true });
  mkdirSync(join(directory, "results"), { recursive: true });
  mkdirSync(outside);
  writeFileSync(join(outside, "entry"), ENTRY);
  calls.splice(0);
  said.splice(0);
});

const TARGETS = { existing: join(outside, "entry"), absent: join(outside, "absent") };

test.each(Object.keys(PLANTED_KINDS) as PlantedKind[])("%s in the place of an entry", (name) => {
  using _ = plantPath(name, file, TARGETS);
  expect(() => addNetworkList(withoutRollback, list, where)).toThrow("it may be attached already");
  expect(() => checkNetworkList(runtime, list, where)).toThrow("no result of an ADD is known");
  expect(listCacheEntries(directory)).toEqual([]);
  gcNetworkList(runtime, list, []);
  // Of GC the plugins hear, of the attachment nobody.
  expect(calls).toEqual(["GC"]);
  delNetworkList(runtime, list, where);
  expect(calls).toEqual(["GC", "DEL"]);
  expect(said.join("\n")).toContain(`Cannot use cached attachment "${file}"`);
  expect(lstatSync(file, { throwIfNoEntry: false })).toBeUndefined();
  expect(readFileSync(join(outside, "entry"), "utf8")).toBe(ENTRY);
  addNetworkList(runtime, list, where);
  expect(lstatSync(file).isFile()).toBe(true);
  expect(readdirSync(outside)).toEqual(["entry"]);
});

test("a link in the place of the directory of entries", () => {
  rmSync(join(directory, "results"), { recursive: true });
  symlinkSync(outside, join(directory, "results"));
  writeFileSync(join(outside, "web-c1-eth0"), ENTRY);
  expect(() => addNetworkList(withoutRollback, list, where)).toThrow("it is a symbolic link");
  expect(() => checkNetworkList(runtime, list, where)).toThrow("no result of an ADD is known");
  gcNetworkList(runtime, list, []);
  delNetworkList(runtime, list, where);
  expect(calls).toEqual(["GC", "DEL"]);
  expect(said.join("\n")).toContain("it is a symbolic link");
  expect(readdirSync(outside).sort()).toEqual(["entry", "web-c1-eth0"]);
});

test("the whole directory may be a link: that is how state is moved", () => {
  rmSync(directory, { recursive: true });
  symlinkSync(outside, directory);
  addNetworkList(runtime, list, where);
  expect(existsSync(join(outside, "results/web-c1-eth0"))).toBe(true);
});

test("links in the place of locks give way to files, and what they lead to is not made", () => {
  const locks = [".gc.lock", ".turn.lock", ...Array.from({ length: 256 }, (_, i) => `.container-${i}.lock`)];
  for (const name of locks) symlinkSync(join(outside, "lock"), join(directory, name));
  addNetworkList(runtime, list, where);
  checkNetworkList(runtime, list, where);
  delNetworkList(runtime, list, where);
  gcNetworkList(runtime, list, []);
  expect(calls).toEqual(["ADD", "CHECK", "DEL", "GC"]);
  expect(readdirSync(outside)).toEqual(["entry"]);
  const stillLinks = locks.filter((name) => lstatSync(join(directory, name)).isSymbolicLink());
  // The locks of other containers.
  expect(stillLinks).toHaveLength(255);
});

test("what holds state can be read by its owner alone, whatever the umask", () => {
  rmSync(directory, { recursive: true });
  const before = process.umask(0);
  try {
    addNetworkList(runtime, list, where);
  } finally {
    process.umask(before);
  }
  const modes = (readdirSync(directory, { recursive: true }) as string[]).concat("").map((name) => {
    const status = statSync(join(directory, name));
    return [name, status.isDirectory() ? "directory" : "file", (status.mode & 0o777).toString(8)];
  });
  expect(modes.length).toBeGreaterThan(4);
  for (const [name, kind, mode] of modes) expect([name, mode]).toEqual([name, kind === "directory" ? "700" : "600"]);
});

const HASH = "0123456789abcdef0123";
const DAMAGES = ["", '{"kind":"cniCac', "\0\0\0\0", '{"kind":"cniCacheV1","containerId":"c1"}'];

test.each(DAMAGES)("a dead container's entry of which %p is left is removed by GC, which says so", (text) => {
  for (const id of ["c1", `cnitool-${HASH}`]) {
    const path = join(directory, `results/web-${id}-eth0`);
    writeFileSync(path, text);
    gcNetworkList(runtime, list, [{ containerId: "c2", ifname: "eth0" }]);
    expect(calls.splice(0)).toEqual(["DEL", "GC"]);
    expect(said.splice(0)).toEqual([
      expect.stringMatching(
        new RegExp(
          `^Cannot use cached attachment "${path}": .*; removing what may be left of "eth0" of container "${id}" on network "web"$`,
        ),
      ),
      `Removed "eth0" of container "${id}" on network "web"`,
    ]);
    expect(existsSync(path)).toBe(false);
  }
});

test("a damaged entry stays where its container lives, or where its name could be that of several", () => {
  const ambiguous = [
    "web-a-b-eth0",
    "web-cnitool-xyz-eth0",
    `web-cnitool-${HASH}0-eth0`,
    "web-c1-eth0-x",
    "web-c1",
    "web-c1-eth0123456789012",
  ];
  for (const name of [...ambiguous, "web-c1-eth0"]) writeFileSync(join(directory, "results", name), "{");
  writeFileSync(join(directory, "results/webb-c1-eth0"), "{");
  gcNetworkList(runtime, list, [{ containerId: "c1", ifname: "eth0" }]);
  expect(calls).toEqual(["GC"]);
  expect(said).toHaveLength(ambiguous.length + 1);
  for (const name of ambiguous) {
    const path = join(directory, "results", name);
    expect(said.find((each) => each.startsWith(`Cannot use cached attachment "${path}": `))).toEndWith(
      "; remove that file if its container is gone",
    );
  }
  expect(said.find((each) => each.includes('web-c1-eth0"'))).toEndWith(
    '; "eth0" of container "c1" on network "web" is to stay',
  );
  expect(readdirSync(join(directory, "results"))).toHaveLength(ambiguous.length + 2);
});

test("an entry of another kind is somebody else's: plugins keep what its attachment has", () => {
  writeFileSync(file, '{"kind":"cniCacheV9"}');
  gcNetworkList(runtime, list, []);
  expect([calls, existsSync(file)]).toEqual([["GC"], true]);
  expect(valid).toEqual([{ containerID: "c1", ifname: "eth0" }]);
  expect(said).toEqual([
    expect.stringContaining(
      'its kind is "cniCacheV9", and this program knows "cniCacheV1"; continuing without it; ' +
        "its addresses and rules stay; remove that file if its container is gone",
    ),
  ]);
});

test("plugins keep what a damaged entry may stand for", () => {
  writeFileSync(join(directory, "results/web-a-b-eth0"), "{");
  gcNetworkList(runtime, list, []);
  expect(valid).toEqual([{ containerID: "a", ifname: "b-eth0" }, { containerID: "a-b", ifname: "eth0" }]);
});

test("plugins keep what an entry has that cannot be read for now, and GC fails", () => {
  writeFileSync(file, ENTRY);
  using _ = interceptSystemCalls(["open"], (_name, args, call) => {
    if (args[0] === file) throw new SystemError("open", EIO);
    return call(...args);
  });
  expect(() => gcNetworkList(runtime, list, [])).toThrow("EIO");
  expect([calls, valid]).toEqual([["GC"], [{ containerID: "c1", ifname: "eth0" }]]);
});

test("what is left of a damaged entry whose plugin fails is found again", () => {
  writeFileSync(file, "");
  const failing = newRuntimeContext({
    programs: () => ({ exitCode: 1, stdout: '{"code":11,"msg":"not now"}' }),
    cacheDirectory: directory,
    log: said,
  });
  expect(() => gcNetworkList(failing, list, [])).toThrow("Cannot clean up network");
  expect(existsSync(file)).toBe(true);
});
