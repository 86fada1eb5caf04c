import { expect, test } from "bun:test";
import { parseNetworkConfigList } from "../../spec/network_config_list.ts";
import { VERSIONS } from "../../spec/version.ts";
import {
  newConformanceNode,
  newRuntimeSandbox,
  SUPPORTED_PLUGINS,
  twoPluginNetwork,
  workingConfig,
} from "../../testing/conformance.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";

/** What a plugin prints on ADD in a version. */
function addResult(type: string, cniVersion: string | undefined) {
  using node = newConformanceNode();
  const { config, options } = workingConfig(type, node);
  return node.succeed(type, "ADD", { ...config, cniVersion }, options);
}

test("VER-01 a version is three numbers, and only released ones are formats", () => {
  using node = newConformanceNode();
  for (const cniVersion of ["1.1", "1", "v1.1.0", "1.1.0-rc1", " 1.1.0", "0.3.2", "01.1.0"]) {
    expect(errorOfCall(() => twoPluginNetwork({ cniVersion })).code).toBe(1);
    for (const type of SUPPORTED_PLUGINS) expect(node.fail(type, "ADD", { cniVersion }).code).toBe(1);
  }
  for (const cniVersion of VERSIONS) expect(twoPluginNetwork({ cniVersion }).cniVersion).toBe(cniVersion);
});

test("VER-02 the newest version that both sides know is used, out of cniVersion and cniVersions", () => {
  const chosen = (cniVersion: string, ...cniVersions: string[]) =>
    twoPluginNetwork({ cniVersion, cniVersions }).cniVersion;
  expect(chosen("0.4.0", "1.0.0", "0.3.1")).toBe("1.0.0");
  expect(chosen("1.1.0", "1.0.0")).toBe("1.1.0");
  expect(chosen("1.0.0", "9.0.0", "1.10.0")).toBe("1.0.0");
  expect(chosen("9.0.0", "0.4.0", "0.10.0", "0.4.9")).toBe("0.4.0");
  expect(errorOfCall(() => chosen("9.0.0", "1.2.0")).code).toBe(1);
});

test("VER-05 up to 0.2.0 every plugin answers in the form that the configuration names", () => {
  for (const type of SUPPORTED_PLUGINS) {
    for (const cniVersion of ["0.1.0", "0.2.0"]) {
      const result = addResult(type, cniVersion);
      expect(result).toMatchObject({ cniVersion, ip4: { ip: expect.stringMatching(/^[\d.]+\/\d+$/) }, dns: {} });
      for (const later of ["ips", "interfaces", "routes"]) expect(result).not.toHaveProperty(later);
    }
  }
});

test("VER-06 in 0.4.0 every plugin answers with the configuration's version", () => {
  for (const type of SUPPORTED_PLUGINS) expect(addResult(type, "0.4.0").cniVersion).toBe("0.4.0");
});

test("VER-07 from 1.0.0 on every plugin answers ADD with the version it was given", () => {
  for (const type of SUPPORTED_PLUGINS) {
    for (const cniVersion of ["1.0.0", "1.1.0"]) expect(addResult(type, cniVersion).cniVersion).toBe(cniVersion);
  }
});

test("VER-08 every plugin refuses a version that it does not support with code 1", () => {
  using node = newConformanceNode();
  for (const type of SUPPORTED_PLUGINS) {
    for (const command of ["ADD", "DEL", "CHECK", "GC", "STATUS"]) {
      expect(node.fail(type, command, { cniVersion: "9.9.9" }).code).toBe(1);
    }
  }
});

test("VER-09 no cniVersion means 0.1.0, to the runtime and to every plugin", () => {
  expect(parseNetworkConfigList('{"name":"web","type":"a"}').cniVersion).toBe("0.1.0");
  for (const type of SUPPORTED_PLUGINS) {
    expect(addResult(type, undefined)).toMatchObject({ cniVersion: "0.1.0", ip4: {} });
  }
});

test("VER-12 every plugin serves every released version", () => {
  for (const type of SUPPORTED_PLUGINS) {
    for (const cniVersion of VERSIONS) {
      using node = newConformanceNode();
      const { config, options } = workingConfig(type, node);
      const prevResult = node.succeed(type, "ADD", { ...config, cniVersion }, options);
      expect(prevResult.cniVersion).toBe(cniVersion);
      if (cniVersion >= "0.4.0") node.succeed(type, "CHECK", { ...config, cniVersion, prevResult }, options);
      node.succeed(type, "DEL", { ...config, cniVersion, prevResult }, options);
    }
  }
});

test("VER-13 the runtime copes with results without interfaces and with the index -1", () => {
  using bench = newRuntimeSandbox();
  const results = [
    { cniVersion: "0.2.0", ip4: { ip: "10.0.0.2/24" } },
    { cniVersion: "1.0.0", ips: [{ address: "10.0.0.2/24", interface: -1 }] },
    { cniVersion: "1.0.0", interfaces: [{ name: "x" }], ips: [{ address: "10.0.0.2/24", interface: 7 }] },
  ];
  for (const [i, result] of results.entries()) {
    bench.answers["a ADD"] = () => ({ exitCode: 0, stdout: JSON.stringify(result) });
    bench.answers["b ADD"] = ({ stdin }) => ({ exitCode: 0, stdout: JSON.stringify(JSON.parse(stdin).prevResult) });
    expect(bench.add(twoPluginNetwork(), { containerId: `c${i}` }).ips?.map((ip) => String(ip.address))).toEqual([
      "10.0.0.2/24",
    ]);
    bench.check(twoPluginNetwork(), { containerId: `c${i}` });
    bench.del(twoPluginNetwork(), { containerId: `c${i}` });
  }
});
