import { expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createNetns } from "../../ffi/netns/netns.ts";
import { runInNetns } from "../../testing/netns.ts";
import { plugin } from "../../plugins/lib/protocol/plugin.ts";
import { CniError } from "../../spec/error.ts";
import { anything } from "../../spec/schema.ts";
import { CNI_UNDER_TEST } from "../../testing/binary.ts";
import {
  BESIDE,
  type ConformanceNode,
  newConformanceNode,
  newRuntimeSandbox,
  SUPPORTED_PLUGINS,
  twoPluginNetwork,
  WAITS,
  workingConfig,
} from "../../testing/conformance.ts";
import { bridgeTestConfig, portmapConfig } from "../../testing/fixture_configs.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";

const listed = (...containers: string[]) => containers.map((containerID) => ({ containerID, ifname: "eth0" }));
const KEYS = ["cni.dev/valid-attachments", "cni.dev/attachments"];

/** What a container has on the host, by its id. */
function held({ host, directory }: ConformanceNode): string[] {
  const files = readdirSync(join(directory, "ipam/net")).filter((name) => /^\d/.test(name));
  const owners = runInNetns(host, "nft", "list", "ruleset").matchAll(/comment "net (\w+) eth0[ "]/g);
  return [...files, ...Array.from(owners, ([, id]) => id!)].sort();
}

test("GC-01 GC has the valid attachments, under the name of 1.1.0 and under the one after it", () => {
  using bench = newRuntimeSandbox();
  bench.gc(twoPluginNetwork(), [{ containerId: "c2", ifname: "eth1" }]);
  const list = [{ containerID: "c2", ifname: "eth1" }];
  for (const { config } of bench.calls) expect(KEYS.map((key) => config[key])).toEqual([list, list]);
  expect(bench.takeCalls()).toEqual(["a GC", "b GC"]);
});

test("GC-02 GC removes reservations, rules and published ports of attachments that are not listed", () => {
  for (const key of KEYS) {
    using node = newConformanceNode();
    const config = bridgeTestConfig(node, { ipMasq: true });
    const ports = (hostPort: number, prevResult: object) =>
      portmapConfig(node, { prevResult, runtimeConfig: { portMappings: [{ hostPort, containerPort: 80 }] } });
    for (const [i, containerId] of ["c1", "c2"].entries()) {
      using gone = createNetns();
      const options = { containerId, netns: gone };
      node.succeed("portmap", "ADD", ports(8080 + i, node.succeed("bridge", "ADD", config, options)), options);
    }
    const ofOne = (
      id: string,
      address: string,
    ) => [address, ...Array(held(node).filter((each) => each === id).length).fill(id)];
    const [first, second] = [ofOne("c1", "10.5.0.2"), ofOne("c2", "10.5.0.3")];
    expect(held(node)).toEqual([...first, ...second].sort());
    expect(first.length).toBeGreaterThan(2);
    for (const type of ["bridge", "portmap"]) node.succeed(type, "GC", { ...config, [key]: listed("c2") });
    expect(held(node)).toEqual(second.sort());
  }
});

/** An IPAM plugin that gives one address and takes nothing back. */
const stubborn = plugin({
  name: "stubborn",
  about: "Fails to collect",
  config: anything,
  add: () => ({ ips: [{ address: "10.5.0.2/24" as never }] }),
  del: () => {},
  check: () => {},
  gc: () => {
    throw new CniError(142, "it stays");
  },
});

test("GC-04 GC goes on behind a failure and reports it at the end", () => {
  using node = newConformanceNode([stubborn]);
  const config = { bridge: "br5", ipMasq: true, ipam: { type: "stubborn" } };
  node.succeed("bridge", "ADD", config);
  const owned = () => runInNetns(node.host, "nft", "list", "ruleset").includes("net c1 eth0");
  expect(owned()).toBe(true);
  expect(node.fail("bridge", "GC", { ...config, [KEYS[0]!]: [] })).toMatchObject({ code: 142, msg: "it stays" });
  expect(owned()).toBe(false);
});

test("GC-05 GC is forwarded to the IPAM plugin", () => {
  using node = newConformanceNode();
  const ipam = node.recorder("my-ipam");
  const config = { ipam: { type: "my-ipam" }, [KEYS[0]!]: listed("c1") };
  expect(node.exec("bridge", "GC", config)).toMatchObject({ exitCode: 0, stdout: "" });
  expect(ipam.stdin("GC")).toMatchObject(config);
});

test("GC-06 GC never stands in for a DEL", () => {
  using bench = newRuntimeSandbox();
  bench.add(twoPluginNetwork());
  bench.add(twoPluginNetwork(), { containerId: "c2" });
  bench.takeCalls();
  bench.del(twoPluginNetwork());
  expect(bench.takeCalls()).toEqual(["b DEL", "a DEL"]);
  bench.gc(twoPluginNetwork());
  expect(bench.takeCalls()).toEqual(["b DEL", "a DEL", "a GC", "b GC"]);
});

test("GC-07 GC has CNI_COMMAND and CNI_PATH", () => {
  using bench = newRuntimeSandbox();
  bench.gc(twoPluginNetwork());
  expect(bench.calls[0]!.env).toMatchObject({ CNI_COMMAND: "GC", CNI_PATH: "/a:/b" });
  for (const type of SUPPORTED_PLUGINS) {
    using node = newConformanceNode();
    const env = { CNI_CONTAINERID: "", CNI_NETNS: "", CNI_IFNAME: "" };
    node.succeed(type, "GC", { ...workingConfig(type, node).config, [KEYS[0]!]: [] }, { env });
  }
});

test("GC-08 GC prints nothing, or an error", () => {
  for (const type of SUPPORTED_PLUGINS) {
    using node = newConformanceNode();
    const config = { ...workingConfig(type, node).config, [KEYS[0]!]: [] };
    expect(node.call(type, "GC", config)).toEqual({ exitCode: 0, stdout: "" });
    expect(node.fail(type, "GC", { ...config, [KEYS[0]!]: "all" })).toMatchObject({ code: 7, cniVersion: "1.1.0" });
  }
});

test("GC-09 a plugin's error does not stop the run, and all errors are returned", () => {
  using bench = newRuntimeSandbox();
  bench.fail("a GC", 142, "first");
  bench.fail("b GC", 5, "second");
  const { code, message, details } = errorOfCall(() => bench.gc(twoPluginNetwork()));
  expect([code, `${message}; ${details}`]).toEqual([142, expect.stringMatching(/first.*second/)]);
  expect(bench.takeCalls()).toEqual(["a GC", "b GC"]);
});

test("GC-10 a missing executable is one of the errors", () => {
  using bench = newRuntimeSandbox();
  const { message } = errorOfCall(() => bench.gc(twoPluginNetwork({ plugins: [{ type: "missing" }, { type: "b" }] })));
  expect(message).toContain('"missing"');
  expect(bench.takeCalls()).toEqual(["b GC"]);
});

test("GC-11 no ADD or DEL runs beside GC", () => {
  using node = newConformanceNode();
  const { directory, container } = node;
  const list = node.file({ cniVersion: "1.1.0", name: "web", plugins: [{ type: "p" }] });
  // Plugins that call the runtime once more.
  const beside = (command: string, words: string) =>
    `[ "$CNI_COMMAND" != ${command} ] || { beside ${CNI_UNDER_TEST} run ${words} --cache-dir ${directory}/cache ` +
    `--plugin-dir ${directory}/bin; echo $? >>"$0.$CNI_COMMAND"; }`;
  const ended = (command: string) => readFileSync(join(directory, `bin/p.${command}`), "utf8");
  const done = '[ "$CNI_COMMAND" != ADD ] || echo "{}"';
  const add = ["add", list, container.path, "--container-id", "c1"];

  node.program("p", [BESIDE, beside("ADD", `gc ${list} --all`), beside("DEL", `gc ${list} --all`), done].join("\n"));
  expect(node.run(...add).exitCode).toBe(0);
  expect(node.run("del", list, "--container-id", "c1").exitCode).toBe(0);
  expect([ended("ADD"), ended("DEL")]).toEqual([`${WAITS}\n`, `${WAITS}\n`]);

  const other = `${list} ${container.path} --container-id c2`;
  node.program("p", [BESIDE, beside("GC", `add ${other}`), beside("GC", `del ${other}`), done].join("\n"));
  expect(node.run("gc", list, "--all").exitCode).toBe(0);
  expect(ended("GC")).toBe(`${WAITS}\n${WAITS}\n`);
});

test("GC-12 GC has no parameters of an attachment, no runtimeConfig and no prevResult", () => {
  using bench = newRuntimeSandbox();
  bench.add(twoPluginNetwork(), { args: [["K", "V"]], capabilityArgs: { ports: [80] } });
  bench.calls.splice(0);
  bench.gc(twoPluginNetwork(), [{ containerId: "c1", ifname: "eth0" }]);
  for (const { env, config } of bench.calls) {
    expect(env).toMatchObject({ CNI_CONTAINERID: "", CNI_NETNS: "", CNI_IFNAME: "", CNI_ARGS: "" });
    for (const key of ["runtimeConfig", "prevResult"]) expect(config).not.toHaveProperty(key);
  }
  expect(bench.calls).toHaveLength(2);
});
