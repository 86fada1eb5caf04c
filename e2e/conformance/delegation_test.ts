import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { runInNetns } from "../../testing/netns.ts";
import {
  type ConformanceNode,
  newConformanceNode,
  newRuntimeSandbox,
  twoPluginNetwork,
} from "../../testing/conformance.ts";
import type { JsonDocument } from "../../testing/json_document.ts";
import { bridgeTestConfig, hostLocalConfig } from "../../testing/fixture_configs.ts";

const RESULT = { cniVersion: "1.1.0", ips: [{ address: "10.5.0.2/24", gateway: "10.5.0.1" }] };
const config = (more: object = {}) => ({ bridge: "br5", ipam: { type: "my-ipam", key: 1 }, keyA: [1], ...more });
const routes = ({ container }: ConformanceNode): JsonDocument[] =>
  JSON.parse(runInNetns(container, "ip", "-j", "route"));

test("DLG-01 the plugin calls its IPAM plugin, the runtime does not", () => {
  using bench = newRuntimeSandbox();
  bench.add(twoPluginNetwork({ plugins: [{ type: "a", ipam: { type: "x" } }] }));
  expect(bench.takeCalls()).toEqual(["a ADD"]);
  using node = newConformanceNode();
  const ipam = node.recorder("my-ipam", RESULT);
  node.exec("bridge", "ADD", config());
  expect(ipam.env("ADD")).toBeDefined();
});

test("DLG-02 the IPAM plugin is found in the directories of CNI_PATH", () => {
  using node = newConformanceNode();
  node.program("my-ipam", `echo '${JSON.stringify(RESULT)}'`, "bin2");
  const env = { CNI_PATH: `${node.directory}/bin:${node.directory}/bin2` };
  expect(node.exec("bridge", "ADD", config(), { env })).toMatchObject({ exitCode: 0 });
  const { exitCode, stdout } = node.exec("bridge", "ADD", config(), {
    env: { CNI_PATH: `${node.directory}/bin` },
    ifname: "eth1",
  });
  expect([exitCode, JSON.parse(stdout).msg]).toEqual([1, expect.stringContaining("my-ipam")]);
});

test("DLG-03 the IPAM plugin gets the environment of the plugin", () => {
  using node = newConformanceNode();
  const ipam = node.recorder("my-ipam", RESULT);
  const env = { CNI_ARGS: "IgnoreUnknown=1;X=Y", EXTRA: "kept", TRACEPARENT: "00-a" };
  node.exec("bridge", "ADD", config(), { env, containerId: "c7", ifname: "net7" });
  expect(ipam.env("ADD")).toMatchObject({
    ...env,
    CNI_COMMAND: "ADD",
    CNI_CONTAINERID: "c7",
    CNI_IFNAME: "net7",
    CNI_NETNS: node.container.path,
    CNI_PATH: expect.stringContaining(node.directory),
  });
});

test("DLG-04 the IPAM plugin gets the whole request", () => {
  using node = newConformanceNode();
  const ipam = node.recorder("my-ipam", RESULT);
  const request = {
    cniVersion: "1.0.0",
    name: "net",
    type: "bridge",
    ...config({ runtimeConfig: { ips: ["10.5.0.2"] } }),
  };
  node.exec("bridge", "ADD", request);
  expect(ipam.stdin("ADD")).toEqual(request);
});

test("DLG-05 what the IPAM plugin says on stderr is passed on", () => {
  using node = newConformanceNode();
  node.program("my-ipam", `echo "the pool is small" >&2; echo '${JSON.stringify(RESULT)}'`);
  const { exitCode, stderr } = node.exec("bridge", "ADD", config());
  expect([exitCode, stderr.split("\n")[0]]).toEqual([0, "the pool is small"]);
});

test("DLG-06 CHECK, DEL and GC are delegated too", () => {
  using node = newConformanceNode();
  const ipam = node.recorder("my-ipam", RESULT);
  const prevResult = JSON.parse(node.exec("bridge", "ADD", config()).stdout);
  for (const command of ["CHECK", "DEL", "GC"]) {
    const request = config({ prevResult, "cni.dev/valid-attachments": [] });
    expect(node.exec("bridge", command, request)).toMatchObject({ exitCode: 0, stdout: "" });
    expect(ipam.stdin(command)).toMatchObject(request);
  }
});

test("DLG-07 an error of the IPAM plugin is returned", () => {
  using node = newConformanceNode();
  for (const command of ["ADD", "DEL", "CHECK", "GC"]) {
    const error = '{"cniVersion":"1.0.0","code":142,"msg":"full","details":"ask for more"}';
    node.program("my-ipam", `[ $CNI_COMMAND != ${command} ] || { echo '${error}'; exit 3; }`);
    const { exitCode, stdout } = node.exec("bridge", command, config({ "cni.dev/valid-attachments": [] }));
    expect([exitCode, JSON.parse(stdout)]).toEqual([
      1,
      expect.objectContaining({
        code: 142,
        msg: "full",
        details: expect.stringMatching(/^ask for more; its program is /),
      }),
    ]);
  }
});

test("DLG-08 when the IPAM plugin fails an ADD, its DEL is called first", () => {
  using node = newConformanceNode();
  node.program(
    "my-ipam",
    `echo $CNI_COMMAND >>"$0.log"; [ $CNI_COMMAND != ADD ] || { echo '{"code":142,"msg":"full"}'; exit 1; }`,
  );
  expect(node.exec("bridge", "ADD", config()).exitCode).toBe(1);
  expect(readFileSync(join(node.directory, "bin/my-ipam.log"), "utf8")).toBe("ADD\nDEL\n");
});

test("DLG-09 the IPAM plugin succeeds with status 0 and a result", () => {
  const outcome = (script: string) => {
    using node = newConformanceNode();
    node.program("my-ipam", script);
    return node.exec("bridge", "ADD", config()).exitCode;
  };
  const text = JSON.stringify(RESULT);
  expect(outcome(`echo '${text}'`)).toBe(0);
  for (
    const script of [`echo '${text}'; exit 1`, "exit 0", "echo ok", `echo '${text}${text}'`, "echo '[]'", "echo '{}'"]
  ) {
    expect(outcome(script)).toBe(1);
  }
});

test("DLG-10 the IPAM plugin decides on address, gateway and routes", () => {
  using node = newConformanceNode();
  const ipam = hostLocalConfig(node, {
    gateway: "10.5.0.9",
    routes: [{ dst: "0.0.0.0/0" }, { dst: "10.9.0.0/16", gw: "10.5.0.8" }],
  });
  for (const cniVersion of ["0.4.0", "1.1.0"]) {
    expect(node.succeed("host-local", "ADD", { cniVersion, ipam }, { containerId: cniVersion })).toMatchObject({
      ips: [{ address: expect.stringMatching(/^10\.5\.0\.\d+\/24$/), gateway: "10.5.0.9" }],
      routes: ipam.routes,
    });
  }
});

/** What host-local says in a version. */
function fromIpam(cniVersion: string): JsonDocument {
  using node = newConformanceNode();
  return node.succeed("host-local", "ADD", { cniVersion, ipam: hostLocalConfig(node) });
}

test("DLG-11 in 0.3 and 0.4 a result of IPAM names no interface", () => {
  for (const cniVersion of ["0.3.0", "0.3.1", "0.4.0"]) {
    expect(fromIpam(cniVersion)).toEqual({
      cniVersion,
      ips: [{ version: "4", address: "10.5.0.2/24", gateway: "10.5.0.1" }],
      routes: [{ dst: "0.0.0.0/0" }],
      dns: {},
    });
  }
});

test("DLG-12 from 1.0.0 on a result of IPAM is the abbreviated form", () => {
  for (const cniVersion of ["1.0.0", "1.1.0"]) {
    expect(fromIpam(cniVersion)).toEqual({
      cniVersion,
      ips: [{ address: "10.5.0.2/24", gateway: "10.5.0.1" }],
      routes: [{ dst: "0.0.0.0/0" }],
    });
  }
});

test("DLG-13 an IPAM plugin may leave out what does not apply", () => {
  using node = newConformanceNode();
  node.recorder("my-ipam", { ips: [{ address: "10.5.0.2/24" }] });
  const { stdout } = node.exec("bridge", "ADD", config({ cniVersion: "1.0.0" }));
  expect(JSON.parse(stdout).ips).toEqual([{ address: "10.5.0.2/24", interface: 2 }]);
});

test("DLG-14 routes are added without a metric", () => {
  using node = newConformanceNode();
  node.succeed("bridge", "ADD", bridgeTestConfig(node, { cniVersion: "0.4.0" }));
  expect(routes(node).map(({ dst, metric }) => [dst, metric])).toEqual([["default", undefined], [
    "10.5.0.0/24",
    undefined,
  ]]);
});

test("DLG-15 a default route that another network has put there is borne", () => {
  using node = newConformanceNode();
  const first = node.newContainer();
  runInNetns(node.container, "ip", "link", "add", "other", "type", "veth", "peer", "name", "o", "netns", first.path);
  runInNetns(node.container, "sh", "-ec", "ip addr add 192.0.2.2/24 dev other; ip link set other up");
  runInNetns(node.container, "ip", "route", "add", "default", "via", "192.0.2.1");
  node.succeed("bridge", "ADD", bridgeTestConfig(node, { cniVersion: "0.4.0" }));
  expect(routes(node).filter(({ dst }) => dst === "default").map(({ gateway }) => gateway)).toContain("192.0.2.1");
});

test("DLG-16 a gateway alone adds no route", () => {
  using node = newConformanceNode();
  const ipam = hostLocalConfig(node, { gateway: "10.5.0.1", routes: [] });
  const { ips } = node.succeed("bridge", "ADD", { cniVersion: "0.4.0", bridge: "br5", ipam });
  expect(ips[0].gateway).toBe("10.5.0.1");
  expect(routes(node).map(({ dst }) => dst)).toEqual(["10.5.0.0/24"]);
});
