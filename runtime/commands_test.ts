import { beforeEach, expect, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ProgramCall } from "../plugins/lib/protocol/exec.ts";
import type { ProgramOutput } from "../plugins/lib/protocol/response.ts";
import { useDirectory } from "../testing/directory.ts";
import { type AnswerAsProgram, errorOfCall, newRuntimeContext } from "../testing/plugin_call.ts";
import { type NetworkConfigList, parseNetworkConfigList } from "../spec/network_config_list.ts";
import { gcNetworkList } from "./gc.ts";
import { addNetworkList } from "./add.ts";
import { checkNetworkList } from "./check.ts";
import type { RuntimeContext } from "./context.ts";
import { delNetworkList } from "./del.ts";
import { getNetworkListStatus } from "./status.ts";

const root = useDirectory("cni-runtime-");

/** A call as a plugin saw it. */
interface Call {
  readonly type: string;
  readonly command: string;
  readonly env: ProgramCall["env"];
  // deno-lint-ignore no-explicit-any -- a request is looked into at many places
  readonly config: any;
}

/** A runtime over plugins that only write down how they are called; ADD answers with one address more than it got. */
interface Bench {
  readonly runtime: RuntimeContext;
  readonly calls: Call[];
  readonly log: string[];
  readonly directory: string;
  /** Lets `type COMMAND` do this instead. */
  readonly answers: Record<string, (request: ProgramCall) => ProgramOutput>;
  /** `a ADD`, `b ADD` since the last time. */
  sequence(): string[];
}

let bench: Bench;
let benches = 0;
beforeEach(() => {
  bench = newBench();
});

function newBench(): Bench {
  const calls: Call[] = [];
  const log: string[] = [];
  const answers: Bench["answers"] = {};
  const directory = join(root, String(benches++));
  const programs: AnswerAsProgram = (type, request) => {
    calls.push({ type, command: request.command, env: request.env, config: JSON.parse(request.stdin) });
    return answers[`${type} ${request.command}`]?.(request) ?? answer(request);
  };
  return {
    runtime: newRuntimeContext({
      programs,
      missing: ["missing"],
      pluginDirectories: ["/a", "/b"],
      cacheDirectory: directory,
      env: { PATH: "/bin", CNI_NETNS_OVERRIDE: "1", CNI_ARGS: "OLD=1", CNI_VERSION: "0.1.0" },
      log,
    }),
    calls,
    log,
    directory,
    answers,
    sequence: () => calls.splice(0).map(({ type, command }) => `${type} ${command}`),
  };
}

function answer({ command, stdin }: ProgramCall): ProgramOutput {
  if (command !== "ADD") return { exitCode: 0, stdout: "" };
  const { cniVersion, prevResult } = JSON.parse(stdin);
  const ips = prevResult?.ips ?? [];
  const address = `10.0.0.${ips.length + 1}/24`;
  return { exitCode: 0, stdout: JSON.stringify({ cniVersion, ips: [...ips, { address }] }) };
}

const fails = (code: number, msg: string): () => ProgramOutput => () => ({
  exitCode: 1,
  stdout: JSON.stringify({ cniVersion: "1.1.0", code, msg, details: "why" }),
});

function list(options: Readonly<Record<string, unknown>> = {}): NetworkConfigList {
  const plugins = [{ type: "a" }, { type: "b", capabilities: { ports: true } }];
  return parseNetworkConfigList(JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins, ...options }));
}

const who = { containerId: "c1", ifname: "eth0" };
const where = { ...who, netns: "/run/netns/x" };
const entryPath = () => join(bench.directory, "results/web-c1-eth0");

test("add() chains the plugins, converting what one answers for the next, and returns the last result", () => {
  const result = addNetworkList(bench.runtime, list({ cniVersion: "0.4.0" }), where);
  expect(result.ips?.map(({ address }) => String(address))).toEqual(["10.0.0.1/24", "10.0.0.2/24"]);
  expect(bench.calls.map(({ config }) => config.prevResult)).toEqual([
    undefined,
    { cniVersion: "0.4.0", ips: [{ version: "4", address: "10.0.0.1/24" }], dns: {} },
  ]);
});

test("add() gives every plugin the parameters, and of other CNI_* variables only the one for plugins", () => {
  addNetworkList(bench.runtime, list(), { ...where, args: [["K", "V"], ["L", "W"]] });
  expect(bench.calls[1]!.env).toEqual({
    PATH: "/bin",
    CNI_NETNS_OVERRIDE: "1",
    CNI_COMMAND: "ADD",
    CNI_CONTAINERID: "c1",
    CNI_NETNS: "/run/netns/x",
    CNI_IFNAME: "eth0",
    CNI_ARGS: "K=V;L=W",
    CNI_PATH: "/a:/b",
  });
});

test("add() gives capability arguments to plugins that declare them, and remembers all", () => {
  addNetworkList(bench.runtime, list(), { ...where, capabilityArgs: { ports: [80], other: 1 } });
  expect(bench.calls.map(({ config }) => config.runtimeConfig)).toEqual([undefined, { ports: [80] }]);
  expect(JSON.parse(readFileSync(entryPath(), "utf8")).capabilityArgs).toEqual({ ports: [80], other: 1 });
});

test("add() converts a result of another version and says so", () => {
  const older = '{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.0.0.9/24"}]}';
  bench.answers["a ADD"] = () => ({ exitCode: 0, stdout: older });
  addNetworkList(bench.runtime, list(), where);
  expect(bench.calls[1]!.config.prevResult).toEqual({ cniVersion: "1.1.0", ips: [{ address: "10.0.0.9/24" }] });
  expect(bench.log).toHaveLength(1);
  expect(bench.log[0]).toContain('"a" answered in version 0.4.0');
});

test("add() refuses a container that is attached already, before any plugin is called", () => {
  addNetworkList(bench.runtime, list(), where);
  bench.sequence();
  expect(errorOfCall(() => addNetworkList(bench.runtime, list(), where)).message).toContain("attached already");
  expect(bench.sequence()).toEqual([]);
  addNetworkList(bench.runtime, list(), { ...where, ifname: "eth1" });
});

test("add() refuses an attachment whose file is another's", () => {
  addNetworkList(bench.runtime, list({ name: "a-b" }), { ...where, containerId: "c" });
  bench.sequence();
  const error = errorOfCall(() => addNetworkList(bench.runtime, list({ name: "a" }), { ...where, containerId: "b-c" }));
  expect(error.message).toContain('container "c" on network "a-b" has the same file name');
  expect(bench.sequence()).toEqual([]);
});

test.each([
  [{ containerId: "" }, "container id"],
  [{ containerId: "../x" }, "container id"],
  [{ ifname: "" }, "interface name"],
  [{ ifname: "a/b" }, "interface name"],
  [{ ifname: "x".repeat(16) }, "interface name"],
  [{ netns: "" }, "network namespace"],
  [{ args: [["A", "B;C=D"]] as const }, 'argument "A"'],
  [{ containerId: "c".repeat(260) }, "fit into a file name"],
])("add() refuses %j with code 4 before any plugin is called", (parameters, text) => {
  const error = errorOfCall(() => addNetworkList(bench.runtime, list(), { ...where, ...parameters }));
  expect(error.code).toBe(4);
  expect(error.message).toContain(text);
  expect(bench.sequence()).toEqual([]);
  expect(existsSync(bench.directory)).toBe(false);
});

test("add() names plugin and command in an error, and keeps its code", () => {
  bench.answers["b ADD"] = fails(111, "broken");
  const { code, message, details } = errorOfCall(() => addNetworkList(bench.runtime, list(), where));
  expect({ code, message, details }).toEqual({
    code: 111,
    message: 'plugin "b" (ADD): broken',
    details: 'why; its program is "/programs/b"',
  });
});

test("add() undoes all plugins in reverse when one fails, and forgets", () => {
  bench.answers["a ADD"] = fails(111, "broken");
  expect(() => addNetworkList(bench.runtime, list(), where)).toThrow("broken");
  expect(bench.sequence()).toEqual(["a ADD", "b DEL", "a DEL"]);
  expect(existsSync(entryPath())).toBe(false);
});

test("add() tells the plugins that it undoes what was set up", () => {
  bench.answers["b ADD"] = fails(111, "broken");
  expect(() => addNetworkList(bench.runtime, list(), { ...where, capabilityArgs: { ports: [80] } })).toThrow();
  const undo = bench.calls.filter(({ command }) => command === "DEL");
  expect(undo.map(({ config }) => config.prevResult.ips)).toEqual([[{ address: "10.0.0.1/24" }], [{
    address: "10.0.0.1/24",
  }]]);
  expect(undo[0]!.config.runtimeConfig).toEqual({ ports: [80] });
});

test("add() goes on undoing when that fails too, says so, and keeps the entry for DEL", () => {
  bench.answers["b ADD"] = fails(111, "broken");
  bench.answers["b DEL"] = fails(5, "stuck");
  const { code, message, details } = errorOfCall(() => addNetworkList(bench.runtime, list(), where));
  expect({ code, message }).toEqual({ code: 111, message: 'plugin "b" (ADD): broken' });
  const clean = `clean-up failed: plugin "b" (DEL): stuck; why; its program is "/programs/b"; remove what stays: `;
  const detach = `cni run del web --container-id c1 --ifname eth0 --cache-dir ${bench.runtime.cacheDirectory}`;
  expect(details).toBe(`why; its program is "/programs/b"; ${clean}${detach}`);
  expect(bench.sequence()).toEqual(["a ADD", "b ADD", "b DEL", "a DEL"]);
  delete bench.answers["b DEL"];
  delNetworkList(bench.runtime, "web", who);
  expect(bench.sequence()).toEqual(["b DEL", "a DEL"]);
  expect(existsSync(entryPath())).toBe(false);
});

test("add() leaves nothing behind for a plugin that does not exist", () => {
  const plugins = [{ type: "a" }, { type: "missing" }];
  const { message, details } = errorOfCall(() => addNetworkList(bench.runtime, list({ plugins }), where));
  expect(message).toBe('plugin "missing" (ADD): Cannot run plugin "missing": no such plugin is built in');
  expect(details).toBeUndefined();
  expect(bench.sequence()).toEqual(["a ADD", "a DEL"]);
  expect(existsSync(entryPath())).toBe(false);
});

test("add() leaves undoing to the caller if told to, and remembers what there is to undo", () => {
  bench.answers["b ADD"] = fails(111, "broken");
  expect(() => addNetworkList({ ...bench.runtime, rollback: false }, list(), where)).toThrow("broken");
  expect(bench.sequence()).toEqual(["a ADD", "b ADD"]);
  delNetworkList(bench.runtime, "web", who);
  expect(bench.calls.map(({ env }) => env.CNI_NETNS)).toEqual(["/run/netns/x", "/run/netns/x"]);
});

test("add() is remembered before the first plugin is called", () => {
  let entry: unknown;
  bench.answers["a ADD"] = (request) => {
    entry = JSON.parse(readFileSync(entryPath(), "utf8"));
    return answer(request);
  };
  addNetworkList(bench.runtime, list(), where);
  expect(entry).toMatchObject({ kind: "cniCacheV1", containerId: "c1", netns: "/run/netns/x" });
  expect(entry).not.toHaveProperty("result");
});

test("add() undoes everything when it cannot remember the result", () => {
  bench.answers["b ADD"] = (request) => {
    rmSync(join(bench.directory, "results"), { recursive: true });
    return answer(request);
  };
  expect(errorOfCall(() => addNetworkList(bench.runtime, list(), where)).code).toBe(5);
  expect(bench.sequence()).toEqual(["a ADD", "b ADD", "b DEL", "a DEL"]);
});

test("add() does not call a plugin when it cannot remember", () => {
  mkdirSync(bench.directory);
  writeFileSync(join(bench.directory, "results"), "");
  expect(() => addNetworkList(bench.runtime, list(), where)).toThrow();
  expect(bench.sequence()).toEqual([]);
});

test("del() calls the plugins in reverse with the result of the ADD, and forgets", () => {
  addNetworkList(bench.runtime, list(), { ...where, args: [["K", "V"]], capabilityArgs: { ports: [80] } });
  bench.calls.splice(0);
  delNetworkList(bench.runtime, list(), who);
  expect(bench.calls.map(({ type }) => type)).toEqual(["b", "a"]);
  const [{ config, env }] = bench.calls as [Call];
  expect(config.prevResult.ips).toHaveLength(2);
  expect(config.runtimeConfig).toEqual({ ports: [80] });
  expect(env).toMatchObject({ CNI_NETNS: "/run/netns/x", CNI_ARGS: "K=V", CNI_COMMAND: "DEL" });
  expect(readdirSync(join(bench.directory, "results"))).toEqual([]);
  expect(bench.log).toEqual([]);
});

test.each(
  [
    [{ args: [["K", "V"]], capabilityArgs: { ports: [80] } }, 0],
    [{ args: [["L", "W"]] }, 1],
    [{ capabilityArgs: { ports: [81] } }, 1],
    [{ args: [], capabilityArgs: {} }, 1],
  ] as const,
)("del() with %j uses the arguments of the ADD, and the namespace of now", (given, said) => {
  addNetworkList(bench.runtime, list(), { ...where, args: [["K", "V"]], capabilityArgs: { ports: [80] } });
  bench.calls.splice(0);
  delNetworkList(bench.runtime, list(), { ...who, netns: "/other", ...given });
  expect(bench.calls[0]!.env).toMatchObject({ CNI_NETNS: "/other", CNI_ARGS: "K=V" });
  expect(bench.calls[0]!.config.runtimeConfig).toEqual({ ports: [80] });
  expect(bench.log).toHaveLength(said);
});

test("check() prefers what the caller says over what is remembered", () => {
  addNetworkList(bench.runtime, list(), { ...where, args: [["K", "V"]], capabilityArgs: { ports: [80] } });
  bench.calls.splice(0);
  checkNetworkList(bench.runtime, list(), { ...who, args: [["L", "W"]], capabilityArgs: { ports: [81] } });
  expect(bench.calls[0]!.env).toMatchObject({ CNI_ARGS: "L=W" });
  expect(bench.calls[1]!.config.runtimeConfig).toEqual({ ports: [81] });
});

test.each([
  ["nothing", undefined],
  ["no more than a result, as by old versions of libcni,", '{"cniVersion":"0.3.1"}'],
])("del() uses what the caller says where %s is remembered", (_, remembered) => {
  if (remembered !== undefined) {
    mkdirSync(join(bench.directory, "results"), { recursive: true });
    writeFileSync(entryPath(), remembered);
  }
  delNetworkList(bench.runtime, list(), { ...who, args: [["L", "W"]], capabilityArgs: { ports: [81] } });
  expect(bench.calls[0]!.env).toMatchObject({ CNI_ARGS: "L=W" });
  expect(bench.calls[0]!.config.runtimeConfig).toEqual({ ports: [81] });
});

test.each([["0.3.1", false], ["0.4.0", true]])("del() of version %s passes a result: %j", (cniVersion, passed) => {
  addNetworkList(bench.runtime, list({ cniVersion }), where);
  bench.calls.splice(0);
  delNetworkList(bench.runtime, list({ cniVersion }), who);
  expect(bench.calls.map(({ config }) => "prevResult" in config)).toEqual([passed, passed]);
});

test("del() uses the configuration of the ADD when that of now is gone, or another, which it says", () => {
  for (const [now, said] of [[list({ plugins: [{ type: "new" }] }), 1], ["web", 0]] as const) {
    addNetworkList(bench.runtime, list(), where);
    bench.sequence();
    delNetworkList(bench.runtime, now, who);
    expect(bench.sequence()).toEqual(["b DEL", "a DEL"]);
    expect(bench.log.splice(0)).toHaveLength(said);
  }
});

test("del() succeeds without a cached entry, and again", () => {
  delNetworkList(bench.runtime, list(), where);
  delNetworkList(bench.runtime, list(), where);
  expect(bench.sequence()).toEqual(["b DEL", "a DEL", "b DEL", "a DEL"]);
  const message =
    '"eth0" of container "c1" on network "web" in "/run/netns/x" is not remembered, but the plugins were called anyway';
  expect(bench.log).toEqual([message, message]);
  expect(errorOfCall(() => delNetworkList(bench.runtime, "web", where)).code).toBe(7);
});

test("del() of a name that may be misspelt says that it is not remembered, and who may be meant", () => {
  addNetworkList(bench.runtime, list(), { ...where, containerId: "pod-1", netns: "/run/netns/blue" });
  addNetworkList(bench.runtime, list(), { ...where, containerId: "a", netns: "/run/netns/a" });
  const netnsThatIsThere = join(bench.directory, "bleu");
  writeFileSync(netnsThatIsThere, "");
  for (
    const [parameters, hint] of [
      [{ containerId: "pod-2", ifname: "eth0" }, '; did you mean "pod-1"?'],
      [{ containerId: "xyz", ifname: "eth0", netns: "/run/netns/bleu" }, '; did you mean "blue"?'],
      [{ containerId: "pod-1", ifname: "eht0" }, '; did you mean "eth0"?'],
      [{ containerId: "pod-1", ifname: "net1" }, '; "pod-1" has "eth0" there'],
      [{ containerId: "xyz", ifname: "eth0" }, ""],
      [{ containerId: "xyz", ifname: "eth0", netns: "/var/run/netns/blue" }, '; "blue" has "eth0" there'],
      [{ containerId: "pod-2", ifname: "eth0", netns: netnsThatIsThere }, ""],
      [{ containerId: "pod-1", ifname: "eht0", netns: netnsThatIsThere }, '; did you mean "eth0"?'],
    ] as const
  ) {
    bench.log.splice(0);
    delNetworkList(bench.runtime, list(), parameters);
    expect(bench.log).toEqual([expect.stringMatching(/ is not remembered, but the plugins were called anyway/)]);
    expect(bench.log[0]!.replace(/^[^;]*/, "")).toBe(hint);
  }
});

test.each([
  ["a torn file", '{"kind":"cniCacheV1","con'],
  ["a broken configuration", cached({ config: btoa('{"name":"web"') })],
  ["a configuration of another network", cached({ config: btoa('{"name":"db","plugins":[{"type":"x"}]}') })],
  ["a broken result", cached({ config: btoa(list().text), result: { cniVersion: "1.1.0", ips: 5 } })],
])("del() is not kept from its work by %s", (_, text) => {
  mkdirSync(join(bench.directory, "results"), { recursive: true });
  writeFileSync(entryPath(), text);
  delNetworkList(bench.runtime, list(), where);
  expect(bench.sequence()).toEqual(["b DEL", "a DEL"]);
  expect(existsSync(entryPath())).toBe(false);
});

function cached(fields: object): string {
  return JSON.stringify({ kind: "cniCacheV1", containerId: "c1", ifName: "eth0", networkName: "web", ...fields });
}

test("del() stops at the first failure and keeps the entry", () => {
  addNetworkList(bench.runtime, list(), where);
  bench.sequence();
  bench.answers["b DEL"] = fails(11, "busy");
  const { code, message } = errorOfCall(() => delNetworkList(bench.runtime, list(), who));
  expect({ code, message }).toEqual({ code: 11, message: 'plugin "b" (DEL): busy' });
  expect(bench.sequence()).toEqual(["b DEL"]);
  expect(existsSync(entryPath())).toBe(true);
});

test.each(["", "../../victim", "a/b"])(
  "del() refuses container id %j, which would lead out of the cache",
  (containerId) => {
    expect(errorOfCall(() => delNetworkList(bench.runtime, list(), { ...where, containerId })).code).toBe(4);
    expect(bench.sequence()).toEqual([]);
  },
);

test("del() of a file in the oldest format passes its result", () => {
  mkdirSync(join(bench.directory, "results"), { recursive: true });
  writeFileSync(entryPath(), '{"cniVersion":"0.3.1","ips":[{"version":"4","address":"10.0.0.7/24"}]}');
  delNetworkList(bench.runtime, list(), where);
  expect(bench.calls[0]!.config.prevResult).toEqual({ cniVersion: "1.1.0", ips: [{ address: "10.0.0.7/24" }] });
});

test("check() calls the plugins in order with the result of the ADD", () => {
  addNetworkList(bench.runtime, list(), where);
  bench.calls.splice(0);
  checkNetworkList(bench.runtime, list(), who);
  expect(bench.calls.map(({ type, command }) => `${type} ${command}`)).toEqual(["a CHECK", "b CHECK"]);
  expect(bench.calls.map(({ config }) => config.prevResult.ips.length)).toEqual([2, 2]);
});

test("check() refuses without a result, with code 3", () => {
  expect(errorOfCall(() => checkNetworkList(bench.runtime, list(), where)).code).toBe(3);
  bench.answers["b ADD"] = fails(111, "broken");
  expect(() => addNetworkList({ ...bench.runtime, rollback: false }, list(), where)).toThrow();
  bench.sequence();
  expect(errorOfCall(() => checkNetworkList(bench.runtime, list(), where)).code).toBe(3);
  expect(bench.sequence()).toEqual([]);
});

test("check() refuses versions that have none, also with disableCheck, which else makes it succeed", () => {
  expect(
    errorOfCall(() => checkNetworkList(bench.runtime, list({ cniVersion: "0.3.1", disableCheck: true }), where)).code,
  ).toBe(1);
  checkNetworkList(bench.runtime, list({ disableCheck: true }), where);
  expect(bench.sequence()).toEqual([]);
});

test("check() stops at the first failure", () => {
  addNetworkList(bench.runtime, list(), where);
  bench.sequence();
  bench.answers["a CHECK"] = fails(111, "drift");
  expect(errorOfCall(() => checkNetworkList(bench.runtime, list(), who)).message).toBe('plugin "a" (CHECK): drift');
  expect(bench.sequence()).toEqual(["a CHECK"]);
});

test("gc() detaches what is not valid, with the parameters of its ADD, then calls GC with the list under both keys", () => {
  for (const containerId of ["c1", "c2"]) addNetworkList(bench.runtime, list(), { ...where, containerId });
  addNetworkList(bench.runtime, list({ name: "db" }), where);
  bench.calls.splice(0);
  gcNetworkList(bench.runtime, list(), [{ containerId: "c2", ifname: "eth0" }, { containerId: "c1", ifname: "eth1" }]);
  expect(bench.calls.map(({ type, command, env }) => `${type} ${command} ${env.CNI_CONTAINERID} ${env.CNI_NETNS}`))
    .toEqual([
      "b DEL c1 /run/netns/x",
      "a DEL c1 /run/netns/x",
      "a GC  ",
      "b GC  ",
    ]);
  const keep = [{ containerID: "c2", ifname: "eth0" }, { containerID: "c1", ifname: "eth1" }];
  expect(bench.calls[2]!.config).toMatchObject({ "cni.dev/valid-attachments": keep, "cni.dev/attachments": keep });
  expect(readdirSync(join(bench.directory, "results")).sort()).toEqual(["db-c1-eth0", "web-c2-eth0"]);
});

test("gc() of everything sends an empty list, not none", () => {
  gcNetworkList(bench.runtime, list(), []);
  expect(bench.calls[0]!.config).toMatchObject({ "cni.dev/valid-attachments": [], "cni.dev/attachments": [] });
});

test("gc() of a version without GC detaches all the same", () => {
  addNetworkList(bench.runtime, list({ cniVersion: "1.0.0" }), where);
  bench.sequence();
  gcNetworkList(bench.runtime, list({ cniVersion: "1.0.0" }), []);
  expect(bench.sequence()).toEqual(["b DEL", "a DEL"]);
});

test("gc() does nothing with disableGC, and says so", () => {
  addNetworkList(bench.runtime, list({ disableGC: true }), where);
  bench.sequence();
  bench.log.splice(0);
  gcNetworkList(bench.runtime, list({ disableGC: true }), []);
  expect(bench.sequence()).toEqual([]);
  expect(bench.log).toEqual(['Nothing is removed from network "web": it has disableGC']);
});

test("gc() goes on behind failures and names them all", () => {
  for (const containerId of ["c1", "c2"]) addNetworkList(bench.runtime, list(), { ...where, containerId });
  bench.sequence();
  bench.answers["b DEL"] = ({ env }) =>
    env.CNI_CONTAINERID === "c1" ? fails(11, "busy")() : { exitCode: 0, stdout: "" };
  bench.answers["a GC"] = fails(5, "disk");
  const { code, message, details } = errorOfCall(() => gcNetworkList(bench.runtime, list(), []));
  expect({ code, message }).toEqual({ code: 11, message: 'Cannot clean up network "web"' });
  expect(details).toBe(
    'plugin "b" (DEL): busy; why; its program is "/programs/b"; plugin "a" (GC): disk; why; its program is "/programs/a"',
  );
  expect(bench.sequence()).toEqual(["b DEL", "b DEL", "a DEL", "a GC", "b GC"]);
  expect(readdirSync(join(bench.directory, "results"))).toEqual(["web-c1-eth0"]);
});

test("gc() calls the plugins also when the cache cannot be read, and reports that", () => {
  mkdirSync(bench.directory);
  writeFileSync(join(bench.directory, "results"), "");
  expect(() => gcNetworkList(bench.runtime, list(), [])).toThrow("results");
  expect(bench.sequence()).toEqual(["a GC", "b GC"]);
});

test("status() asks the plugins in order and stops at the first that could not serve", () => {
  getNetworkListStatus(bench.runtime, list());
  expect(bench.sequence()).toEqual(["a STATUS", "b STATUS"]);
  bench.answers["a STATUS"] = fails(50, "no addresses left");
  const { code, message } = errorOfCall(() => getNetworkListStatus(bench.runtime, list()));
  expect({ code, message }).toEqual({ code: 50, message: 'plugin "a" (STATUS): no addresses left' });
  expect(bench.sequence()).toEqual(["a STATUS"]);
});

test("status() of a version without STATUS asks no program and says so", () => {
  getNetworkListStatus(bench.runtime, list({ cniVersion: "1.0.0" }));
  expect(bench.sequence()).toEqual([]);
  expect(bench.log).toEqual(['Network "web" has cniVersion 1.0.0, which has no STATUS: "a", "b" not asked']);
});
