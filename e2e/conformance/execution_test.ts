import { expect, test } from "bun:test";
import { readFileSync, readlinkSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { runInNetns } from "../../testing/netns.ts";
import { VERSIONS } from "../../spec/version.ts";
import { runPlugin } from "../../testing/binary.ts";
import {
  ATTACHMENT,
  ATTACHMENT_WITH_NETNS,
  newConformanceNode,
  newRuntimeSandbox,
  SUPPORTED_PLUGINS,
  twoPluginNetwork,
} from "../../testing/conformance.ts";
import type { JsonDocument } from "../../testing/json_document.ts";
import { bridgeTestConfig } from "../../testing/fixture_configs.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";

const list = (...plugins: object[]) => ({ cniVersion: "1.1.0", name: "web", plugins });
const ATTACHMENT_COMMANDS = ["ADD", "DEL", "CHECK"];

test("EXE-01 a plugin is an executable", () => {
  using node = newConformanceNode();
  for (const type of SUPPORTED_PLUGINS) {
    expect(node.exec(type, "VERSION", {})).toMatchObject({ exitCode: 0, stdout: expect.stringContaining("1.1.0") });
  }
});

test("EXE-02 the runtime executes the file named by type", () => {
  using node = newConformanceNode();
  const recorder = node.recorder("a.b-c");
  node.run("add", node.file(list({ type: "a.b-c" })), node.container.path);
  expect(recorder.env("ADD")).toMatchObject({ CNI_COMMAND: "ADD" });
});

test("EXE-03 the executable is looked up in a list of directories, and the first wins", () => {
  using node = newConformanceNode();
  const says = (where: string) =>
    `[ $CNI_COMMAND != ADD ] || echo '{"cniVersion":"1.1.0","dns":{"domain":"${where}"}}'`;
  const path = node.file(list({ type: "p" }));
  const add = (id: string) => JSON.parse(node.run("add", path, node.container.path, "--container-id", id).stdout);
  node.program("p", says("second"), "bin2");
  expect(add("c1").dns.domain).toBe("second");
  node.program("p", says("first"));
  expect(add("c2").dns.domain).toBe("first");
});

test("EXE-04 plugins are told the list of directories", () => {
  using node = newConformanceNode();
  const recorder = node.recorder("p");
  node.run("add", node.file(list({ type: "p" })), node.container.path);
  expect(recorder.env("ADD")!.CNI_PATH).toBe(`${node.directory}/bin:${node.directory}/bin2`);
});

test("EXE-05 plugins run in the namespace of the runtime", () => {
  using node = newConformanceNode();
  node.program("p", `readlink /proc/self/ns/net >"$0.ns"; [ $CNI_COMMAND != ADD ] || echo '{}'`);
  expect(node.run("add", node.file(list({ type: "p" })), node.container.path)).toMatchObject({ exitCode: 0 });
  const own = node.host.run(() => readlinkSync("/proc/thread-self/ns/net"));
  expect(readFileSync(join(node.directory, "bin/p.ns"), "utf8").trim()).toBe(own);
});

test("EXE-06 parameters are in the environment, the configuration is on stdin", () => {
  using node = newConformanceNode();
  const recorder = node.recorder("p");
  const path = node.file(list({ type: "p", key: 1 }));
  node.run("add", path, node.container.path, "--container-id", "c1", "--ifname", "eth3");
  expect(recorder.env("ADD")).toMatchObject({
    CNI_COMMAND: "ADD",
    CNI_CONTAINERID: "c1",
    CNI_NETNS: node.container.path,
    CNI_IFNAME: "eth3",
    CNI_ARGS: "",
  });
  expect(recorder.stdin("ADD")).toEqual({ cniVersion: "1.1.0", name: "web", type: "p", key: 1 });
});

test("EXE-07 every plugin of a list gets the same environment", () => {
  for (const cniVersion of ["0.3.0", "0.3.1", "0.4.0"]) {
    using bench = newRuntimeSandbox();
    bench.add(twoPluginNetwork({ cniVersion }), { args: [["K", "V"]] });
    const [first, second] = bench.calls;
    expect(second!.env).toEqual(first!.env);
    expect(first!.env).toMatchObject({ PATH: "/bin", CNI_ARGS: "K=V" });
  }
});

test("EXE-08 a plugin of version 0.1.0 is told so in CNI_VERSION", () => {
  const told = VERSIONS.map((cniVersion) => {
    using bench = newRuntimeSandbox();
    bench.add(twoPluginNetwork({ cniVersion }));
    return bench.calls[0]!.env.CNI_VERSION;
  });
  expect(told).toEqual(["0.1.0", ...VERSIONS.slice(1).map(() => undefined)]);
});

test("EXE-09 CNI_COMMAND is a command that the version has", () => {
  const sent = (cniVersion: string) => {
    using bench = newRuntimeSandbox();
    const web = twoPluginNetwork({ cniVersion });
    bench.add(web);
    for (const each of [bench.check, bench.status, bench.del, bench.gc]) {
      try {
        each(web);
      } catch {
        // what the version does not have
      }
    }
    return [...new Set(bench.calls.map(({ command }) => command))].sort();
  };
  for (const version of VERSIONS) {
    const later = [...(version >= "0.4.0" ? ["CHECK"] : []), ...(version >= "1.1.0" ? ["GC", "STATUS"] : [])];
    expect(sent(version)).toEqual(["ADD", "DEL", ...later].sort());
  }
  using node = newConformanceNode();
  for (const type of SUPPORTED_PLUGINS) {
    for (const command of ["add", "UPDATE", " ADD", "toString"]) expect(node.fail(type, command, {}).code).toBe(4);
  }
});

test("EXE-10 a container id is given, and is another for another container", () => {
  using node = newConformanceNode();
  const recorder = node.recorder("p");
  const path = node.file(list({ type: "p" }));
  const ids = [node.container, node.newContainer()].map((container) => {
    node.run("add", path, container.path);
    return recorder.env("ADD")!.CNI_CONTAINERID;
  });
  expect(ids).toEqual([expect.stringMatching(/^\S{8,}$/), expect.stringMatching(/^\S{8,}$/)]);
  expect(ids[0]).not.toBe(ids[1]!);
});

/** Refused by the runtime before a plugin is called, and by every plugin. */
function expectRefused(attachment: { containerId?: string; ifname?: string }): void {
  using bench = newRuntimeSandbox();
  expect(errorOfCall(() => bench.add(twoPluginNetwork(), attachment)).code).toBe(4);
  expect(bench.calls).toEqual([]);
  using node = newConformanceNode();
  for (const type of SUPPORTED_PLUGINS) {
    for (const command of ATTACHMENT_COMMANDS) expect(node.fail(type, command, {}, attachment).code).toBe(4);
  }
}

test("EXE-11 an empty container id is refused, by the runtime and by every plugin", () =>
  expectRefused({ containerId: "" }));

test('EXE-12 a container id begins with a letter or digit and goes on with those, "_", "." and "-"', () => {
  for (const containerId of ["-a", ".a", "_a", "a/b", "../a", "a b", "a\n", "ä", "a\0", "a;b"]) {
    expectRefused({ containerId });
  }
  using bench = newRuntimeSandbox();
  for (const containerId of ["a", "0", "A-b_c.d", "f".repeat(64)]) bench.add(twoPluginNetwork(), { containerId });
  expect(bench.calls).toHaveLength(8);
});

test("EXE-13 CNI_NETNS is the path of a namespace: of a process, of a link, of a mount", () => {
  using node = newConformanceNode();
  const { host, container, directory } = node;
  using stack = new DisposableStack();
  const { child } = container.run(() => ({ child: Bun.spawn(["sleep", "60"]) }));
  stack.defer(() => child.kill());
  const [link, mount] = [join(directory, "link"), join(directory, "mount")];
  symlinkSync(container.path, link);
  const add = (path: string, ...wrapper: string[]) =>
    host.run(() =>
      runPlugin("loopback", {
        env: { CNI_COMMAND: "ADD", CNI_IFNAME: "lo", CNI_NETNS: path },
        stdin: JSON.stringify({ cniVersion: "0.4.0", name: "lo", type: "loopback" }),
        wrapper,
      })
    );
  const mounted = [
    "unshare",
    "-m",
    "sh",
    "-ec",
    `: >${mount}; mount --bind ${container.path} ${mount}; exec "$@"`,
    "sh",
  ];
  for (const ended of [add(`/proc/${child.pid}/ns/net`), add(link), add(mount, ...mounted)]) {
    expect(ended).toMatchObject({ exitCode: 0, stdout: expect.stringContaining("127.0.0.1/8") });
  }
  for (const path of [directory, mount, "/nonexistent"]) expect(JSON.parse(add(path).stdout).code).toBe(8);
});

test("EXE-14 CNI_NETNS is passed on as it was given", () => {
  using bench = newRuntimeSandbox();
  const netns = "/run//netns/../netns/a b";
  bench.add(twoPluginNetwork({ cniVersion: "1.0.0" }), { netns });
  bench.del(twoPluginNetwork({ cniVersion: "1.0.0" }));
  expect(bench.calls.map(({ env }) => env.CNI_NETNS)).toEqual([netns, netns, netns, netns]);
});

test("EXE-15 an interface name that Linux would not take is refused", () => {
  for (const ifname of ["", "x".repeat(16), "é".repeat(8), ".", "..", "a/b", "a:b", "a b", "a\tb", "a\u2003b"]) {
    expectRefused({ ifname });
  }
  using bench = newRuntimeSandbox();
  for (const ifname of ["a", "x".repeat(15), "é".repeat(7), "eth0.5@x"]) bench.add(twoPluginNetwork(), { ifname });
  expect(bench.calls).toHaveLength(8);
});

test("EXE-16 the container's interface has the name that was asked for", () => {
  using node = newConformanceNode();
  const result = node.succeed("bridge", "ADD", bridgeTestConfig(node), { ifname: "net7" });
  expect(result.interfaces.filter((each: JsonDocument) => each.sandbox)).toMatchObject([{ name: "net7" }]);
  expect(runInNetns(node.container, "ip", "link", "show", "net7")).toContain("net7");
});

test('EXE-17 CNI_ARGS are pairs with "=", joined by ";"', () => {
  using bench = newRuntimeSandbox();
  bench.add(twoPluginNetwork(), { args: [["IgnoreUnknown", "1"], ["IP", "10.0.0.9"]] });
  expect(bench.calls[0]!.env.CNI_ARGS).toBe("IgnoreUnknown=1;IP=10.0.0.9");
  for (const args of [[["A", "1;B=2"]], [["A", "1=2"]], [["", "1"]]] as const) {
    expect(errorOfCall(() => bench.add(twoPluginNetwork(), { containerId: "c2", args })).code).toBe(4);
  }
  using node = newConformanceNode();
  const mac = "0a:00:00:00:00:07";
  const add = (text: string) => node.call("bridge", "ADD", {}, { env: { CNI_ARGS: text } });
  for (const text of ["MAC", `MAC=${mac};`, `MAC=${mac};K8S=x`, "MAC=1=2"]) {
    expect(JSON.parse(add(text).stdout).code).toBe(4);
  }
  expect(add(`K8S=x;MAC=${mac};IgnoreUnknown=true`).stdout).toContain(mac);
});

test('EXE-18 directories in CNI_PATH are joined by ":" when plugins are called', () => {
  for (const cniVersion of ["0.1.0", "0.2.0"]) {
    using bench = newRuntimeSandbox();
    bench.add(twoPluginNetwork({ cniVersion }));
    expect(bench.calls[0]!.env.CNI_PATH).toBe("/a:/b");
  }
});

test('EXE-19 directories in CNI_PATH are split at ":" by plugins that delegate', () => {
  using node = newConformanceNode();
  const ipam = node.recorder("my-ipam", { cniVersion: "1.1.0", ips: [{ address: "10.5.0.2/24" }] });
  const env = { CNI_PATH: `/nonexistent::${node.directory}/bin` };
  expect(node.exec("bridge", "ADD", { ipam: { type: "my-ipam" } }, { env })).toMatchObject({ exitCode: 0 });
  expect(ipam.env("ADD")).toMatchObject(env);
});

test("EXE-20 all parameters of an attachment are set, also those that are empty", () => {
  using bench = newRuntimeSandbox();
  bench.add(twoPluginNetwork());
  bench.check(twoPluginNetwork());
  bench.del(twoPluginNetwork(), { netns: "" });
  for (const { env } of bench.calls) {
    expect(Object.keys(env)).toContainValues(["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"]);
    expect(env).toMatchObject({ CNI_CONTAINERID: ATTACHMENT.containerId, CNI_IFNAME: ATTACHMENT.ifname, CNI_ARGS: "" });
  }
  expect(bench.calls.map(({ env }) => env.CNI_NETNS)).toEqual([...Array(4).fill(ATTACHMENT_WITH_NETNS.netns), "", ""]);
});

test("EXE-21 the exit status is 0 for success and 1 for failure", () => {
  using node = newConformanceNode();
  expect(node.exec("loopback", "ADD", {}, { ifname: "lo" }).exitCode).toBe(0);
  for (const type of SUPPORTED_PLUGINS) {
    expect(node.exec(type, "ADD", { name: "" }).exitCode).toBe(1);
    expect(node.exec(type, "NONE", {}).exitCode).toBe(1);
  }
});

/** The error objects of every plugin, called as programs. */
function failures(cniVersion: string | undefined): JsonDocument[] {
  using node = newConformanceNode();
  return SUPPORTED_PLUGINS.map((type) => {
    const { exitCode, stdout, stderr } = node.exec(type, "ADD", { cniVersion, name: "-" });
    expect([exitCode, stderr]).toEqual([1, ""]);
    return JSON.parse(stdout);
  });
}

test("EXE-22 up to 0.4.0 a failure is an error object on stdout, and nothing else", () => {
  for (const version of VERSIONS.filter((each) => each < "1.0.0")) {
    for (const document of failures(version)) expect(document).toMatchObject({ code: 7, msg: expect.any(String) });
  }
});

test("EXE-23 from 1.0.0 on a failure is an error object on stdout, and nothing else", () => {
  for (const version of ["1.0.0", "1.1.0"]) {
    for (const document of failures(version)) expect(document).toMatchObject({ code: 7, msg: expect.any(String) });
  }
});

test("EXE-24 an error object has cniVersion, code and msg, and details if there are any", () => {
  for (const document of failures("1.1.0")) {
    expect(document).toEqual({
      cniVersion: "1.1.0",
      code: 7,
      msg: expect.stringMatching(/./),
      details: expect.stringMatching(/./),
    });
  }
  using node = newConformanceNode();
  for (const type of SUPPORTED_PLUGINS) {
    expect(Object.keys(node.fail(type, "ADD", { name: "" }))).toEqual(["cniVersion", "code", "msg"]);
  }
});

test("EXE-25 up to 0.4.0 the error object names the version of the request", () => {
  for (const version of VERSIONS.filter((each) => each < "1.0.0")) {
    for (const document of failures(version)) expect(document.cniVersion).toBe(version);
  }
});

test("EXE-26 in 1.0.0 the error object repeats the version of the request", () => {
  for (const document of failures("1.0.0")) expect(document.cniVersion).toBe("1.0.0");
});

test("EXE-27 in 1.1.0 the error object names the version in use, also if the request has none", () => {
  for (const version of ["1.1.0", undefined, "9.9.9"]) {
    for (const document of failures(version)) expect(document.cniVersion).toBe("1.1.0");
  }
});

test("EXE-28 what a plugin says on stderr does not disturb its answer", () => {
  using node = newConformanceNode();
  node.program("p", `echo '{"code":7} no JSON' >&2; [ $CNI_COMMAND != ADD ] || echo '{"dns":{"domain":"a"}}'`);
  const { exitCode, stdout, stderr } = node.run("add", node.file(list({ type: "p" })), node.container.path);
  expect([exitCode, JSON.parse(stdout).dns]).toEqual([0, { domain: "a" }]);
  expect(stderr).toContain('{"code":7} no JSON');
});

test("EXE-29 a result is JSON on stdout", () => {
  using node = newConformanceNode();
  for (const cniVersion of ["1.0.0", "1.1.0"]) {
    const { stdout, stderr } = node.exec("loopback", "ADD", { cniVersion }, { ifname: "lo" });
    expect(JSON.parse(stdout)).toMatchObject({ cniVersion, interfaces: [{ name: "lo" }] });
    expect(stderr).toBe("");
  }
});
