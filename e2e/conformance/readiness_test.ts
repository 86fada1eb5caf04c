import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { runInNetns } from "../../testing/netns.ts";
import { VERSIONS } from "../../spec/version.ts";
import { CNI_UNDER_TEST, pluginLink, SERVER_ENV } from "../../testing/binary.ts";
import {
  type ConformanceNode,
  newConformanceNode,
  newRuntimeSandbox,
  SUPPORTED_PLUGINS,
  twoPluginNetwork,
  workingConfig,
} from "../../testing/conformance.ts";
import { bridgeTestConfig, hostLocalConfig } from "../../testing/fixture_configs.ts";

/** host-local with a single address, which is taken. */
function exhausted(node: ConformanceNode) {
  const config = { ipam: hostLocalConfig(node, { subnet: "10.5.0.0/30" }) };
  node.succeed("host-local", "ADD", config);
  return config;
}

test("STA-01 every plugin that is ready answers STATUS with exit status 0", () => {
  for (const type of SUPPORTED_PLUGINS) {
    using node = newConformanceNode();
    const { config } = workingConfig(type, node);
    expect(node.call(type, "STATUS", config)).toEqual({ exitCode: 0, stdout: "" });
    expect(node.exec(type, "STATUS", config)).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  }
});

test("STA-02 a plugin that is not ready answers with exit status 1 and an error object on stdout", () => {
  using node = newConformanceNode();
  runInNetns(node.host, "ip", "link", "add", "br5", "type", "veth", "peer", "name", "x");
  const ended = node.exec("bridge", "STATUS", bridgeTestConfig(node));
  expect([ended.exitCode, JSON.parse(ended.stdout)]).toEqual([1, expect.objectContaining({ msg: expect.any(String) })]);
});

test("STA-03 STATUS fails when there is no address left", () => {
  using node = newConformanceNode();
  const config = exhausted(node);
  expect(node.fail("host-local", "STATUS", config).msg).toContain("in use");
  node.succeed("host-local", "DEL", config);
  node.succeed("host-local", "STATUS", config);
});

test("STA-04 STATUS fails with code 50 or 51", () => {
  using node = newConformanceNode();
  const codes = [node.fail("host-local", "STATUS", exhausted(node)).code];
  const file = join(node.directory, "file");
  writeFileSync(file, "");
  codes.push(node.fail("host-local", "STATUS", { ipam: hostLocalConfig(node, { dataDir: file }) }).code);
  runInNetns(node.host, "ip", "link", "add", "br5", "type", "veth", "peer", "name", "x");
  codes.push(node.fail("bridge", "STATUS", bridgeTestConfig(node)).code);
  expect(codes).toEqual([50, 50, 50]);
});

test("STA-05 ADD works though STATUS was never called", () => {
  for (const type of SUPPORTED_PLUGINS) {
    using node = newConformanceNode();
    const { config, options } = workingConfig(type, node);
    node.succeed(type, "ADD", config, options);
  }
  using bench = newRuntimeSandbox();
  bench.add(twoPluginNetwork());
  expect(bench.takeCalls()).not.toContain("a STATUS");
});

test("STA-06 other commands work though STATUS failed", () => {
  using node = newConformanceNode();
  const config = exhausted(node);
  node.fail("host-local", "STATUS", config);
  node.succeed("host-local", "CHECK", config);
  node.succeed("host-local", "GC", { ...config, "cni.dev/attachments": [{ containerID: "c1", ifname: "eth0" }] });
  node.succeed("host-local", "DEL", config);
  expect(node.succeed("host-local", "ADD", config).ips).toHaveLength(1);
});

test("STA-07 STATUS is delegated to the IPAM plugin", () => {
  using node = newConformanceNode();
  const ipam = node.recorder("my-ipam");
  expect(node.exec("bridge", "STATUS", { ipam: { type: "my-ipam" } })).toMatchObject({ exitCode: 0, stdout: "" });
  expect(ipam.env("STATUS")).toMatchObject({ CNI_COMMAND: "STATUS" });
});

test("STA-08 an error of the IPAM plugin is returned", () => {
  using node = newConformanceNode();
  node.program("my-ipam", `echo '{"code":51,"msg":"the server is down"}'; exit 1`);
  const { exitCode, stdout } = node.exec("bridge", "STATUS", { ipam: { type: "my-ipam" } });
  expect([exitCode, JSON.parse(stdout)]).toMatchObject([1, {
    cniVersion: "1.1.0",
    code: 51,
    msg: "the server is down",
  }]);
});

/** What a plugin is told that is asked about no attachment. */
const NO_ATTACHMENT = {
  PATH: "/bin",
  CNI_CONTAINERID: "",
  CNI_NETNS: "",
  CNI_IFNAME: "",
  CNI_ARGS: "",
  CNI_PATH: "/a:/b",
};

test("STA-09 STATUS has the configuration, and nothing of an attachment", () => {
  using bench = newRuntimeSandbox();
  bench.add(twoPluginNetwork(), { capabilityArgs: { ports: [80] } });
  bench.calls.splice(0);
  bench.status(twoPluginNetwork({ plugins: [{ type: "a", key: 1, capabilities: { ports: true } }] }));
  const [{ env, config }] = bench.calls as [typeof bench.calls[0]];
  expect(env).toEqual({ ...NO_ATTACHMENT, CNI_COMMAND: "STATUS" });
  expect(config).toEqual({ cniVersion: "1.1.0", name: "web", type: "a", key: 1, capabilities: { ports: true } });
});

test("VSN-01 every plugin answers VERSION with cniVersion and supportedVersions", () => {
  using node = newConformanceNode();
  for (const type of SUPPORTED_PLUGINS) {
    const { exitCode, stdout } = node.exec(type, "VERSION", { cniVersion: "1.1.0" });
    expect([exitCode, JSON.parse(stdout)]).toEqual([0, { cniVersion: "1.1.0", supportedVersions: [...VERSIONS] }]);
  }
});

/** Runs a program with nothing in its environment but these. */
const bare = (type: string, env: Record<string, string>, stdin: string) =>
  Bun.spawnSync([pluginLink(type)], { env: { ...env, ...SERVER_ENV }, stdin: Buffer.from(stdin), cwd: "/" });

test("VSN-02 VERSION needs no parameters", () => {
  for (const type of SUPPORTED_PLUGINS) {
    const child = bare(type, { CNI_COMMAND: "VERSION" }, '{"cniVersion":"0.4.0"}');
    expect([child.exitCode, JSON.parse(child.stdout.toString()).cniVersion]).toEqual([0, "0.4.0"]);
  }
});

test("VSN-03 the answer repeats the version that was asked with", () => {
  using node = newConformanceNode();
  for (const cniVersion of VERSIONS) {
    for (const type of SUPPORTED_PLUGINS) {
      expect(node.succeed(type, "VERSION", { cniVersion }).cniVersion).toBe(cniVersion);
    }
  }
});

test("VSN-04 VERSION is asked with an object that has a cniVersion, and survives anything else", () => {
  for (const type of SUPPORTED_PLUGINS) {
    for (const stdin of ["", "{", "[]", "null", "{}", '{"cniVersion":"9.9.9"}', '{"cniVersion":1}', "\0\xff"]) {
      const child = bare(type, { CNI_COMMAND: "VERSION" }, stdin);
      expect([child.exitCode, JSON.parse(child.stdout.toString()).cniVersion]).toEqual([0, "1.1.0"]);
    }
  }
});

test("VSN-05 the answer is on stdout", () => {
  for (const type of SUPPORTED_PLUGINS) {
    const { stdout, stderr } = bare(type, { CNI_COMMAND: "VERSION" }, '{"cniVersion":"1.0.0"}');
    expect(stdout.toString()).toMatch(/^\{"cniVersion":"1\.0\.0","supportedVersions":\[[^\]]+\]\}\n$/);
    expect(stderr.toString()).toBe("");
  }
  expect(Bun.spawnSync([CNI_UNDER_TEST, "--version"]).stdout.toString()).toContain("1.1.0");
});
