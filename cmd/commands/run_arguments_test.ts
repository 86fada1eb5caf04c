import { expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { UsageError } from "../options.ts";
import { containerIdOfNetns } from "../../runtime/container_id.ts";
import { absolutePath, parseRun } from "./run_arguments.ts";

const parse = (argv: string, env: Record<string, string> = {}) => parseRun(argv.split(" "), env, () => "/base")!;

test("parseRun() takes the defaults of cnitool", () => {
  expect(parse("add web blue")).toEqual({
    verb: "add",
    network: "web",
    netns: "/run/netns/blue",
    containerId: containerIdOfNetns("/run/netns/blue"),
    ifname: "eth0",
    confDirectory: "/etc/cni/net.d",
    pluginDirectories: ["/opt/cni/bin"],
    cacheDirectory: "/var/lib/cni",
    publish: [],
    ips: [],
    valid: [],
    json: false,
    command: "ADD",
    surplus: [],
  });
});

const ENV = {
  NETCONFPATH: "/conf",
  CNI_PATH: "/a:/b",
  CNI_IFNAME: "net1",
  CNI_ARGS: "K=V;L=W",
  CAP_ARGS: '{"x":1}',
  CNI_CONTAINERID: "c1",
};

test("parseRun() takes the variables of cnitool", () => {
  expect(parse("add web blue", ENV)).toMatchObject({
    confDirectory: "/conf",
    pluginDirectories: ["/a", "/b"],
    ifname: "net1",
    args: [["K", "V"], ["L", "W"]],
    capabilityArgs: { x: 1 },
    containerId: "c1",
  });
});

test("parseRun() prefers options over variables", () => {
  const options =
    "--conf-dir conf --plugin-dir bin:/c -i net2 --args M=X --cap-args {} --container-id c2 --cache-dir ../cache";
  expect(parse(`add web blue ${options} --timeout 500ms --json`, ENV)).toMatchObject({
    confDirectory: "/base/conf",
    pluginDirectories: ["/base/bin", "/c"],
    cacheDirectory: "/cache",
    ifname: "net2",
    args: [["M", "X"]],
    capabilityArgs: {},
    containerId: "c2",
    timeoutMs: 500,
    json: true,
  });
});

test("parseRun() takes a separator alone for no directory of plugins, and an empty variable for none given", () => {
  expect(parse("add web blue --plugin-dir :").pluginDirectories).toEqual([]);
  expect(parse("add web blue", { CNI_PATH: ":" }).pluginDirectories).toEqual([]);
  expect(parse("add web blue", { CNI_PATH: "" }).pluginDirectories).toEqual(["/opt/cni/bin"]);
  expect(() => parseRun(["add", "web", "blue", "--plugin-dir", ""], {}, () => "/")).toThrow(UsageError);
});

test("parseRun() reads what is to be published and asked for", () => {
  const { publish, ips, mac } = parse(
    "add web blue -p 80:80 -p 127.0.0.1:53:53/udp --ip 10.1.0.5 --ip FD00::5/64 --mac 0A:58:0a:01:00:02",
  );
  expect(publish.map(({ hostPort }) => hostPort)).toEqual([80, 53]);
  expect(ips).toEqual(["10.1.0.5", "fd00::5/64"]);
  expect(mac).toBe("0a:58:0a:01:00:02");
});

test("derivedContainerId() is cnitool's for the same path", () => {
  // Printed by cnitool for `add NET /var/run/netns/blue`.
  expect(containerIdOfNetns("/var/run/netns/blue")).toBe("cnitool-296747069b8a02dc4e2a");
});

test.each([
  ["blue", "/run/netns/blue"],
  ["/var/run/netns/blue", "/var/run/netns/blue"],
  ["./blue", "/base/blue"],
  ["/proc//12/./ns/../ns/net/", "/proc/12/ns/net"],
])("parseRun() finds namespace %j at %j, and takes the container id from there", (netns, path) => {
  expect(parse(`add web ${netns}`)).toMatchObject({ netns: path, containerId: containerIdOfNetns(path) });
});

test.each([["/", "/"], ["..", "/"], ["../../..", "/"], ["a/b/../c", "/base/a/c"], ["/a/..", "/"]])(
  "absolutePath() of %j is %j",
  (path, expected) => {
    expect(absolutePath(path, () => "/base")).toBe(expected);
  },
);

test("parseRun() needs no namespace where cnitool does not use it, but takes one", () => {
  expect(parse("status web").netns).toBeUndefined();
  expect(parse("status web blue").verb).toBe("status");
  for (const word of ["blue", "..", "/x"]) {
    expect(parse(`gc web ${word} --all`)).toMatchObject({ verb: "gc", network: "web", containerId: "", surplus: [] });
    expect(parse(`status web ${word}`).netns).toBeUndefined();
  }
  expect(parse("gc web --all").valid).toEqual([]);
  for (const words of ["restore", "restore --all"]) {
    expect(parse(words)).toMatchObject({ verb: "restore", network: "", surplus: [] });
  }
  expect(parse("restore web blue")).toMatchObject({ verb: "restore", network: "web", surplus: ["blue"] });
  expect(parse("del web --container-id c1")).toMatchObject({ containerId: "c1" });
});

test("parseRun() leaves what follows the arguments alone, as cnitool does", () => {
  expect(parse("add web blue green red").surplus).toEqual(["green", "red"]);
  expect(parse("status web blue green").surplus).toEqual(["green"]);
});

test("parseRun() takes a name for a file in the working directory where no namespace has that name, as cnitool does", () => {
  const directory = mkdtempSync(join(tmpdir(), "cni-arguments-"));
  writeFileSync(join(directory, "netns-of-this-test"), "");
  const path = parseRun(["add", "web", "netns-of-this-test"], {}, () => directory)!.netns;
  rmSync(directory, { recursive: true });
  expect(path).toBe(join(directory, "netns-of-this-test"));
  expect(parseRun(["add", "web", "netns-of-this-test"], {}, () => directory)!.netns).toBe(
    "/run/netns/netns-of-this-test",
  );
});

test("parseRun() needs no working directory, unless a path is relative", () => {
  const removed = (argv: string) => parseRun(argv.split(" "), {}, () => undefined)!;
  expect(removed("add web blue").netns).toBe("/run/netns/blue");
  expect(removed("list --cache-dir /cache").cacheDirectory).toBe("/cache");
  expect(() => removed("add web ./blue")).toThrow(
    new UsageError('"./blue" is relative to the working directory, and that was removed'),
  );
});

test("parseRun() reads what is to be listed and derived", () => {
  expect(parse("list")).toMatchObject({ verb: "list", network: "", containerId: "" });
  expect(parse("list web --json")).toMatchObject({ network: "web", json: true });
  expect(parse("derive web")).toMatchObject({ verb: "derive", command: "ADD", containerId: "" });
  expect(parse("derive web blue --command del")).toMatchObject({ command: "DEL", netns: "/run/netns/blue" });
  expect(parse("derive web --command GC --valid c1").valid).toEqual([{ containerId: "c1", ifname: "eth0" }]);
  expect(parse("derive web --command GC").valid).toEqual([]);
});

test("parseRun() reads the attachments that stay", () => {
  expect(parse("gc web --valid c1/eth1 --valid c2").valid).toEqual([
    { containerId: "c1", ifname: "eth1" },
    { containerId: "c2", ifname: "eth0" },
  ]);
});

test.each([["30", 30_000], ["1.5s", 1500], ["2m", 120_000], ["20ms", 20]])(
  "parseRun() reads a time of %j as %d ms",
  (text, expected) => {
    expect(parse(`status web --timeout ${text}`).timeoutMs).toBe(expected);
  },
);

test("parseRun() gives nothing when help is asked for, however incomplete the rest is", () => {
  expect(parseRun(["--help"], {}, () => "/")).toBeUndefined();
  expect(parseRun(["add", "-h"], {}, () => "/")).toBeUndefined();
  expect(parseRun(["help"], {}, () => "/")).toBeUndefined();
});

test.each([
  [[], "what shall be run"],
  [["ad", "web", "blue"], 'did you mean "add"'],
  [["add"], "needs a network"],
  [["add", ""], "needs a network"],
  [["add", "web"], "needs a network namespace"],
  [["check", "web"], "needs a network namespace"],
  [["del", "web"], "--container-id"],
  [["add", "web", ".."], "must be a file name"],
  [["gc", "web"], "--all"],
  [["restore", "web", "--all"], "not both"],
  [["restore", "--valid", "c1"], 'belong to "run gc"'],
  [["gc", "web", "--all", "--valid", "c1"], "--all"],
  [["add", "web", "blue", "--all"], 'belong to "run gc"'],
  [["derive", "web", "--valid", "c1"], 'belong to "run gc"'],
  [["derive", "web", "--command", "GC", "--valid", "c1", "--all"], "--all"],
  [["gc", "web", "--valid", ""], "needs a value"],
  [["gc", "web", "--valid", "/eth0"], 'got "/eth0", whose container id is empty'],
  [["gc", "web", "--valid", "c1/"], 'got "c1/", whose interface name is empty'],
  [["gc", "web", "--valid", "c1", "--valid", "a/b/c"], 'got "a/b/c", whose interface name "b/c" has a /'],
  [["gc", "web", "--valid", "/run/netns/web"], "ID or ID/IFNAME"],
  [["add", "web", "blue", "--cache-dir", ""], '"--cache-dir" needs a value'],
  [["derive", "web", "--command", "VERSION"], "--command must be one of ADD, CHECK, DEL, GC, STATUS"],
  [["derive"], "needs a network"],
  [["add", "web", "blue", "--command", "ADD"], 'belongs to "run derive"'],
  [["add", "web", ""], "needs a network namespace"],
  [["add", "web", "blue", "--args", "K"], "KEY=VALUE"],
  [["add", "web", "blue", "--args", "K=V;"], "KEY=VALUE"],
  [["add", "web", "blue", "--args", "K=V=W"], "KEY=VALUE"],
  [["add", "web", "blue", "--cap-args", "[]"], "JSON object"],
  [["add", "web", "blue", "--cap-args", "{"], "--cap-args"],
  [["add", "web", "blue", "--ip", "10.1.0"], "--ip"],
  [["add", "web", "blue", "--ip", "10.1.0.5/x"], "--ip"],
  [["add", "web", "blue", "--mac", "0a:58"], "--mac"],
  [["add", "web", "blue", "--timeout", "soon"], "--timeout"],
  [["add", "web", "blue", "--timeout", "0"], "--timeout"],
])("parseRun() refuses %j", (argv, message) => {
  expect(() => parseRun(argv, {}, () => "/")).toThrow(UsageError);
  expect(() => parseRun(argv, {}, () => "/")).toThrow(message);
});
