import { expect, test } from "bun:test";
import { runInNetns } from "../../testing/netns.ts";
import {
  type ConformanceNode,
  newConformanceNode,
  type RecordedProgram,
  SUPPORTED_PLUGINS,
  workingConfig,
} from "../../testing/conformance.ts";
import type { JsonDocument } from "../../testing/json_document.ts";
import { bridgeTestConfig, earlierResult, hostLocalConfig, portmapConfig } from "../../testing/fixture_configs.ts";

const MAC = "0a:00:00:00:00:07";

test("CNV-01 the conventions are supported where they make sense", () => {
  using node = newConformanceNode();
  const give = (runtimeConfig: object) =>
    node.succeed("host-local", "ADD", { ipam: hostLocalConfig(node), runtimeConfig }, {
      containerId: `c${Object.keys(runtimeConfig)}`,
    });
  expect(give({ ips: ["10.5.0.77"] }).ips[0].address).toBe("10.5.0.77/24");
  expect(give({ ipRanges: [[{ subnet: "10.6.0.0/24" }]] }).ips[0].address).toBe("10.6.0.2/24");
  expect(node.succeed("bridge", "ADD", { bridge: "br5", runtimeConfig: { mac: MAC } }).interfaces[2].mac).toBe(MAC);
  node.succeed("portmap", "ADD", portmapConfig(node));
  expect(runInNetns(node.host, "nft", "list", "ruleset")).toContain("tcp . 8080");
});

test("CNV-02 plugins take arguments in the conventional form", () => {
  using node = newConformanceNode();
  const ask = (type: string, config: object, CNI_ARGS = "") =>
    node.succeed(type, "ADD", config, { containerId: `c${ids++}`, ifname: `eth${ids}`, env: { CNI_ARGS } });
  let ids = 0;
  const ipam = hostLocalConfig(node);
  expect(ask("host-local", { ipam, args: { cni: { ips: ["10.5.0.78"] } } }).ips[0].address).toBe("10.5.0.78/24");
  expect(ask("host-local", { ipam }, "IgnoreUnknown=1;K8S=x;IP=10.5.0.79").ips[0].address).toBe("10.5.0.79/24");
  expect(ask("bridge", { args: { cni: { mac: MAC } } }).interfaces[2].mac).toBe(MAC);
  expect(ask("bridge", {}, `MAC=0A:00:00:00:00:08`).interfaces[2].mac).toBe("0a:00:00:00:00:08");
});

/** What plugins get when the command line asks for ports and addresses. */
function asked(node: ConformanceNode, capabilities: readonly string[]): RecordedProgram {
  const recorder = node.recorder("p");
  const declared = Object.fromEntries(capabilities.map((name) => [name, true]));
  const list = node.file({ cniVersion: "1.1.0", name: "web", plugins: [{ type: "p", capabilities: declared }] });
  const wishes = ["-p", "127.0.0.1:8080:80/udp", "--ip", "10.5.0.9", "--mac", MAC];
  expect(node.run("add", list, node.container.path, ...wishes)).toMatchObject({ exitCode: 0 });
  return recorder;
}
const CAPABILITIES = ["portMappings", "ips", "mac"];
const CONVENTIONAL = {
  portMappings: [{ hostPort: 8080, containerPort: 80, protocol: "udp", hostIP: "127.0.0.1" }],
  ips: ["10.5.0.9"],
  mac: MAC,
};

test("CNV-03 the command line passes ports and addresses on in the conventional form only", () => {
  using node = newConformanceNode();
  const request = asked(node, CAPABILITIES).stdin("ADD");
  expect(request).toEqual({ cniVersion: "1.1.0", name: "web", type: "p", runtimeConfig: CONVENTIONAL });
});

test("CNV-04 a malformed value that was expected is an error that names it", () => {
  using node = newConformanceNode();
  const malformed: [type: string, runtimeConfig: object, named: string][] = [
    ["portmap", { portMappings: "8080:80" }, "portMappings"],
    ["portmap", { portMappings: [{ hostPort: 0, containerPort: 80 }] }, "portMappings[0].hostPort"],
    ["portmap", { portMappings: [{ hostPort: 1, containerPort: 80, protocol: "icmp" }] }, "portMappings[0].protocol"],
    ["host-local", { ips: ["10.5.0"] }, "ips[0]"],
    ["host-local", { ipRanges: [[{}]] }, "ipRanges[0][0].subnet"],
    ["bridge", { mac: "zz" }, "mac"],
  ];
  for (const [type, runtimeConfig, named] of malformed) {
    const { config, options } = workingConfig(type, node);
    const { code, msg } = node.fail(type, "ADD", { ...config, runtimeConfig }, options);
    expect([code, msg]).toEqual([7, expect.stringContaining(`runtimeConfig.${named}`)]);
  }
});

test("CNV-05 the command line puts dynamic data into runtimeConfig", () => {
  using node = newConformanceNode();
  const recorder = node.recorder("p");
  const list = node.file({
    cniVersion: "1.1.0",
    name: "web",
    plugins: [{ type: "p", capabilities: { bandwidth: true } }],
  });
  node.run("add", list, node.container.path, "--cap-args", '{"bandwidth":{"ingressRate":1000},"other":1}');
  expect(recorder.stdin("ADD").runtimeConfig).toEqual({ bandwidth: { ingressRate: 1000 } });
});

test("CNV-06 the runtime puts nothing into args", () => {
  using node = newConformanceNode();
  expect(asked(node, CAPABILITIES).stdin("ADD")).not.toHaveProperty("args");
  expect(asked(newConformanceNode(), ["portMappings"]).stdin("ADD")).not.toHaveProperty("args");
});

test("CNV-07 args.cni that a plugin does not understand is ignored", () => {
  for (const type of SUPPORTED_PLUGINS) {
    using node = newConformanceNode();
    const { config, options } = workingConfig(type, node);
    node.succeed(type, "ADD", { ...config, args: { cni: { aliases: ["a"], GUID: "x", "": {} } } }, options);
  }
});

test("CNV-09 conventional args stand under args.cni, and only there", () => {
  using node = newConformanceNode();
  const ipam = hostLocalConfig(node);
  const first = (args: object, containerId: string): JsonDocument =>
    node.succeed("host-local", "ADD", { ipam, args }, { containerId }).ips[0].address;
  expect(first({ ips: ["10.5.0.80"] }, "c1")).toBe("10.5.0.2/24");
  expect(first({ cni: { ips: ["10.5.0.80"] } }, "c2")).toBe("10.5.0.80/24");
});

test("CNV-10 what a plugin declares as a capability is not said in CNI_ARGS", () => {
  using node = newConformanceNode();
  expect(asked(node, CAPABILITIES).env("ADD")!.CNI_ARGS).toBe("");
});

test("CNV-11 what is in args.cni makes the same field of CNI_ARGS void", () => {
  using node = newConformanceNode();
  const config = { bridge: "br5", args: { cni: { mac: MAC } } };
  const env = { CNI_ARGS: "MAC=0a:00:00:00:00:08" };
  expect(node.succeed("bridge", "ADD", config, { env }).interfaces[2].mac).toBe(MAC);
});

test("CNV-13 a plugin for any kind of interface works behind another", () => {
  using node = newConformanceNode();
  runInNetns(node.container, "ip", "link", "add", "eth0", "type", "bridge");
  const result = node.succeed("portmap", "ADD", portmapConfig(node));
  expect(result).toMatchObject({ interfaces: earlierResult(node).interfaces });
  node.succeed("portmap", "CHECK", portmapConfig(node));
  expect(node.succeed("bridge", "ADD", bridgeTestConfig(node), { ifname: "eth1" }).interfaces[2].name).toBe("eth1");
});
