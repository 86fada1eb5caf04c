import { expect, test } from "bun:test";
import { type NetworkConfigList, parseNetworkConfigList } from "../spec/network_config_list.ts";
import { createEntry } from "./cache.ts";
import { useDirectory } from "../testing/directory.ts";
import { newRuntimeContext } from "../testing/plugin_call.ts";
import { type DeriveOptions, deriveRequests } from "./derive.ts";

const directory = useDirectory("cni-derive-");

const list = (options: object = {}): NetworkConfigList =>
  parseNetworkConfigList(JSON.stringify({
    cniVersion: "1.1.0",
    name: "web",
    plugins: [{ type: "a", x: 1 }, { type: "b", capabilities: { ports: true } }],
    ...options,
  }));
const who = { containerId: "c1", ifname: "eth0" };

function derive(network: NetworkConfigList | string, options: DeriveOptions) {
  const log: string[] = [];
  const requests = deriveRequests(newRuntimeContext({ cacheDirectory: directory, log }), network, options);
  return { log, requests: requests.map(({ type, request }) => [type, JSON.parse(request)]) };
}

const a = { cniVersion: "1.1.0", name: "web", type: "a", x: 1 };
const b = { cniVersion: "1.1.0", name: "web", type: "b" };

test("deriveRequests() of an ADD gives what the plugins get in order, without what only they know", () => {
  const capabilityArgs = { ports: [80], other: 1 };
  expect(derive(list(), { verb: "ADD", parameters: { ...who, capabilityArgs } })).toEqual({
    log: [],
    requests: [["a", a], ["b", { ...b, runtimeConfig: { ports: [80] } }]],
  });
});

const result = { cniVersion: "1.1.0", ips: [{ address: "10.1.0.2/16" }] };
createEntry(directory, {
  network: "web",
  ...who,
  config: list().text,
  netns: "/run/netns/x",
  args: [],
  capabilityArgs: { ports: [80] },
  result,
});

test("deriveRequests() of CHECK and DEL gives what is remembered, also without a configuration of now", () => {
  const asked = [["a", { ...a, prevResult: result }], ["b", {
    ...b,
    prevResult: result,
    runtimeConfig: { ports: [80] },
  }]];
  expect(derive(list(), { verb: "CHECK", parameters: who })).toEqual({ log: [], requests: asked });
  const removed = derive("web", { verb: "DEL", parameters: { ...who, capabilityArgs: { ports: [81] } } });
  expect([removed.requests, removed.log.length]).toEqual([asked.toReversed(), 1]);
  const changed = derive(list({ plugins: [{ type: "c" }] }), { verb: "CHECK", parameters: who });
  expect([changed.requests, changed.log.length]).toEqual([asked, 1]);
});

test("deriveRequests() of CHECK and DEL without an attachment has no result in it", () => {
  expect(derive(list(), { verb: "DEL" }).requests).toEqual([["b", b], ["a", a]]);
  expect(derive(list(), { verb: "CHECK", parameters: { ...who, ifname: "eth1" } }).requests).toEqual([["a", a], [
    "b",
    b,
  ]]);
});

test("deriveRequests() of GC and STATUS has no attachment in it but those that stay", () => {
  const capable = { ...b, capabilities: { ports: true } };
  expect(derive(list(), { verb: "STATUS" }).requests).toEqual([["a", a], ["b", capable]]);
  const keep = [{ containerID: "c1", ifname: "eth0" }];
  const both = { "cni.dev/valid-attachments": keep, "cni.dev/attachments": keep };
  expect(derive(list(), { verb: "GC", valid: [who] }).requests).toEqual([["a", { ...a, ...both }], ["b", {
    ...capable,
    ...both,
  }]]);
});

test.each(
  [
    ["STATUS", { cniVersion: "1.0.0" }, "no STATUS"],
    ["GC", { cniVersion: "1.0.0" }, "no GC"],
    ["GC", { disableGC: true }, "disableGC"],
    ["CHECK", { disableCheck: true }, "disableCheck"],
  ] as const,
)("deriveRequests() of %s has nothing for a network with %j, and says so", (verb, options, reason) => {
  const { log, requests } = derive(list(options), { verb });
  expect(requests).toEqual([]);
  expect(log).toHaveLength(1);
  expect(log[0]).toContain(reason);
});

test("deriveRequests() of CHECK fails for a version that has none, as CHECK does", () => {
  expect(() => derive(list({ cniVersion: "0.3.1" }), { verb: "CHECK" })).toThrow("CHECK came with 0.4.0");
});
