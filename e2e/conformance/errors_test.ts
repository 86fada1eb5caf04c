import { expect, test } from "bun:test";
import { errorOf, runPlugin } from "../../testing/binary.ts";
import {
  newConformanceNode,
  newRuntimeSandbox,
  SUPPORTED_PLUGINS,
  twoPluginNetwork,
} from "../../testing/conformance.ts";
import { hostLocalConfig } from "../../testing/fixture_configs.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";

test("ERR-01 a plugin's own code from 100 up reaches the caller", () => {
  using bench = newRuntimeSandbox();
  for (const code of [100, 111, 4242]) {
    bench.fail("b ADD", code, "mine");
    expect(errorOfCall(() => bench.add(twoPluginNetwork()))).toMatchObject({
      code,
      message: expect.stringContaining("mine"),
    });
  }
});

test("ERR-02 of the codes below 100 only those of the specification are used, and 8", () => {
  using node = newConformanceNode();
  const wrong = [
    {},
    { name: "" },
    { name: 1 },
    { cniVersion: "9.9.9" },
    { cniVersion: 1 },
    { prevResult: 1 },
    { prevResult: { ips: [{}] } },
    { ipam: 1 },
    { ipam: { type: "host-local", subnet: "x" } },
    { ipam: { type: "absent" } },
    { runtimeConfig: 1 },
    { dns: 1 },
  ];
  const codes = new Set<number>();
  for (const type of SUPPORTED_PLUGINS) {
    for (const command of ["ADD", "CHECK", "DEL", "GC", "STATUS", "NONE"]) {
      for (const config of wrong) {
        for (const netns of [null, "/nonexistent", node.host]) {
          const { exitCode, stdout } = node.call(type, command, config, { netns });
          if (exitCode !== 0) codes.add(JSON.parse(stdout).code);
        }
      }
    }
  }
  expect(codes.size).toBeGreaterThan(4);
  const listed = [1, 2, 3, 4, 5, 6, 7, 8, 11, 50, 51];
  expect([...codes].filter((code) => code < 100 && !listed.includes(code))).toEqual([]);
});

test("ERR-03 1 says that the version does not have the command", () => {
  using node = newConformanceNode();
  for (const type of SUPPORTED_PLUGINS) {
    expect(node.fail(type, "CHECK", { cniVersion: "0.3.1" })).toMatchObject({ code: 1, cniVersion: "0.3.1" });
    for (const command of ["GC", "STATUS"]) expect(node.fail(type, command, { cniVersion: "1.0.0" }).code).toBe(1);
  }
  using bench = newRuntimeSandbox();
  bench.add(twoPluginNetwork({ cniVersion: "0.3.1" }));
  expect(errorOfCall(() => bench.check(twoPluginNetwork({ cniVersion: "0.3.1" }))).code).toBe(1);
});

test("ERR-05 3 says that the container is unknown", () => {
  using bench = newRuntimeSandbox();
  expect(errorOfCall(() => bench.check(twoPluginNetwork())).code).toBe(3);
});

test("ERR-06 4 names every variable that is missing or wrong", () => {
  using node = newConformanceNode();
  for (const type of SUPPORTED_PLUGINS) {
    const { code, msg } = node.fail(type, "ADD", {}, { containerId: "", ifname: "a/b", netns: null });
    expect(code).toBe(4);
    for (const name of ["CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS"]) expect(msg).toContain(name);
    expect(node.fail(type, "", {}).msg).toContain("CNI_COMMAND");
  }
});

test("ERR-07 5 says that stdin cannot be read", () => {
  for (const type of SUPPORTED_PLUGINS) {
    const finished = runPlugin(type, { env: { CNI_COMMAND: "ADD" }, wrapper: ["sh", "-c", 'exec "$@" </', "sh"] });
    expect(errorOf(finished).code).toBe(5);
  }
});

test("ERR-08 6 says that the request cannot be decoded", () => {
  using node = newConformanceNode();
  for (const type of SUPPORTED_PLUGINS) {
    for (const text of ["", "{", '{"name":"a",}}', "[]", '"x"', "1", '{"name":1}', '{"name":"a","cniVersion":1}']) {
      expect(errorOf(node.exec(type, "ADD", text)).code).toBe(6);
    }
  }
});

test("ERR-09 7 names the path and the value of what is wrong in a configuration", () => {
  using node = newConformanceNode();
  for (const type of SUPPORTED_PLUGINS) {
    const { code, msg } = node.fail(type, "ADD", { dns: { nameservers: "10.0.0.1" } });
    expect([code, msg]).toEqual([7, expect.stringMatching(/dns\.nameservers .*"10\.0\.0\.1"/)]);
  }
});

test("ERR-10 11 reaches the caller, who may try again", () => {
  using bench = newRuntimeSandbox();
  bench.fail("a ADD", 11, "later");
  expect(errorOfCall(() => bench.add(twoPluginNetwork())).code).toBe(11);
});

test("ERR-11 50 says that an ADD could not be served", () => {
  using node = newConformanceNode();
  const config = { ipam: hostLocalConfig(node, { subnet: "10.5.0.0/30" }) };
  node.succeed("host-local", "ADD", config);
  expect(node.fail("host-local", "STATUS", config).code).toBe(50);
});

test("ERR-12 51 reaches the caller of STATUS", () => {
  using bench = newRuntimeSandbox();
  bench.fail("b STATUS", 51, "half of it is gone");
  expect(errorOfCall(() => bench.status(twoPluginNetwork())).code).toBe(51);
});
