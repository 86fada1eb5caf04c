import { expect, test } from "bun:test";
import { deriveRequest, parseNetworkConfigList, type PluginRequestOptions } from "../../spec/network_config_list.ts";
import { parseResult } from "../../spec/result.ts";
import { type CniCommand, VERSIONS } from "../../spec/version.ts";
import type { JsonDocument } from "../../testing/json_document.ts";

const ATTACHMENT_VERBS = ["ADD", "DEL", "CHECK"] as const;
const VERBS: readonly CniCommand[] = [...ATTACHMENT_VERBS, "GC", "STATUS"];
const capabilityArgs = { mac: "0a:00:00:00:00:01", portMappings: [{ hostPort: 80, containerPort: 80 }], bandwidth: {} };

/** The request for a plugin of a network. */
function derive(
  plugin: object,
  options: PluginRequestOptions,
  versions: object = { cniVersion: "1.1.0" },
): JsonDocument {
  const list = parseNetworkConfigList(
    JSON.stringify({ ...versions, name: "web", plugins: [{ type: "a", ...plugin }] }),
  );
  return JSON.parse(deriveRequest(list, list.plugins[0]!, options));
}
/** The same in a version, and its runtimeConfig. */
const provided = (cniVersion: string, verb: CniCommand, capabilities: object): JsonDocument =>
  derive({ capabilities }, { command: verb, capabilityArgs }, { cniVersion }).runtimeConfig;

test("DRV-01 the request has the version that was chosen", () => {
  for (const verb of VERBS) {
    expect(derive({ cniVersion: "0.1.0" }, { command: verb }, { cniVersion: "1.0.0" }).cniVersion).toBe("1.0.0");
    const versions = { cniVersion: "0.4.0", cniVersions: ["1.1.0", "9.0.0"] };
    expect(derive({ CNIVERSION: "x" }, { command: verb }, versions)).toEqual({
      type: "a",
      name: "web",
      cniVersion: "1.1.0",
      ...verb === "GC" && both([]),
    });
  }
});

test("DRV-02 the request has the network's name", () => {
  for (const verb of VERBS) expect(derive({ name: "own" }, { command: verb }).name).toBe("web");
});

test("DRV-03 in 0.3 and 0.4 a plugin with a capability gets a runtimeConfig", () => {
  for (const version of ["0.3.0", "0.3.1", "0.4.0"]) {
    expect(provided(version, "ADD", { mac: true })).toEqual({ mac: capabilityArgs.mac });
  }
});

test("DRV-04 in 0.3 and 0.4 its keys are capabilities that this plugin declares", () => {
  for (const version of ["0.3.0", "0.3.1", "0.4.0"]) {
    for (const verb of ["ADD", "DEL"] as const) {
      expect(provided(version, verb, { ips: true, mac: true, Bandwidth: true })).toEqual({ mac: capabilityArgs.mac });
      expect(provided(version, verb, { ips: true })).toBeUndefined();
    }
  }
});

test("DRV-05 in 1.0.0 it holds what is both declared and provided", () => {
  const { mac, bandwidth } = capabilityArgs;
  expect(provided("1.0.0", "ADD", { mac: true, bandwidth: true, portMappings: false, ips: true })).toEqual({
    mac,
    bandwidth,
  });
});

test("DRV-06 in 1.1.0 it holds the same, for ADD, DEL and CHECK only", () => {
  const got = VERBS.map((verb) => provided("1.1.0", verb, { mac: true, ips: true }));
  const { mac } = capabilityArgs;
  expect(got).toEqual([{ mac }, { mac }, { mac }, undefined, undefined]);
});

test("DRV-07 every capability that is declared true and provided is there", () => {
  for (const version of ["1.0.0", "1.1.0"]) {
    const all = { mac: true, portMappings: true, bandwidth: true };
    for (const verb of ATTACHMENT_VERBS) expect(provided(version, verb, all)).toEqual(capabilityArgs);
  }
});

test("DRV-08 capabilities are not in the request", () => {
  for (const cniVersion of ["1.0.0", "1.1.0"]) {
    for (const key of ["capabilities", "Capabilities"]) {
      for (const verb of ATTACHMENT_VERBS) {
        expect(Object.keys(derive({ [key]: { mac: true } }, { command: verb }, { cniVersion })).sort()).toEqual([
          "cniVersion",
          "name",
          "type",
        ]);
      }
    }
  }
});

test("DRV-09 prevResult is in the request when there is one", () => {
  const prevResult = parseResult({ ips: [{ address: "10.0.0.2/24" }] }, "1.1.0");
  for (const cniVersion of VERSIONS) {
    const sent = VERBS.filter((verb) => "prevResult" in derive({}, { command: verb, prevResult }, { cniVersion }));
    expect(sent).toEqual(cniVersion < "0.4.0" ? ["ADD", "CHECK"] : ["ADD", "DEL", "CHECK"]);
    for (const verb of VERBS) expect(derive({}, { command: verb }, { cniVersion })).not.toHaveProperty("prevResult");
  }
});

/** What an administrator may write that nobody here knows. */
const OTHER = {
  keyA: ["some more", { a: [null, true, -1.5] }],
  ipam: { type: "x", routes: [{ dst: "0.0.0.0/0" }], dataDir: "" },
  dns: { nameservers: ["10.0.0.1"], unknown: {} },
  args: { cni: { labels: [] } },
  sysctl: { "net.core.somaxconn": "500" },
  Mixed: null,
};

test("DRV-10 in 1.0.0 all other fields pass unaltered", () => {
  for (const verb of ATTACHMENT_VERBS) {
    const request = derive(OTHER, { command: verb }, { cniVersion: "1.0.0" });
    expect(request).toEqual({ cniVersion: "1.0.0", name: "web", type: "a", ...OTHER });
  }
});

/** The attachments under both of their names. */
function both(list: readonly object[]) {
  return { "cni.dev/valid-attachments": list, "cni.dev/attachments": list };
}

test("DRV-11 in 1.1.0 all other fields pass unaltered", () => {
  for (const verb of VERBS) {
    const request = derive(OTHER, { command: verb });
    expect(request).toEqual({ cniVersion: "1.1.0", name: "web", type: "a", ...OTHER, ...verb === "GC" && both([]) });
  }
});

test("DRV-12 the request for GC has the valid attachments", () => {
  const validAttachments = [{ containerId: "c1", ifname: "eth0" }, { containerId: "c1", ifname: "eth1" }];
  const sent = validAttachments.map(({ containerId, ifname }) => ({ containerID: containerId, ifname }));
  const request = derive({ "cni.dev/attachments": [{ containerID: "old", ifname: "x" }] }, {
    command: "GC",
    validAttachments,
  });
  expect(request).toMatchObject(both(sent));
  for (const verb of ["ADD", "STATUS"] as const) {
    expect(derive({}, { command: verb, validAttachments })).not.toHaveProperty(["cni.dev/valid-attachments"]);
  }
});
