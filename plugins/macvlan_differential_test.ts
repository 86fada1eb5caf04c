/** The same requests for the reference plugin and for ours: what the kernel shows afterwards, and the results, must be the same. */
import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import host_local from "./host_local.ts";
import { callReference } from "./kit/testing_reference.ts";
import { newSandbox, type Sandbox } from "./kit/testing.ts";
import { linkNames, shell, shown } from "./kit/testing_segment.ts";
import macvlan from "./macvlan.ts";
import type { Document } from "../cmd/conformance/testing.ts";

const addresses = ({ directory }: Sandbox, more: object = {}) => ({
  ipam: {
    type: "host-local",
    dataDir: `${directory}/ipam`,
    ranges: [[{ subnet: "10.5.0.0/24", gateway: "10.5.0.1" }]],
    routes: [{ dst: "0.0.0.0/0" }, { dst: "10.9.0.0/16", gw: "10.5.0.9" }],
    ...more,
  },
});

const CASES: Readonly<Record<string, (sandbox: Sandbox) => { config: object; env?: Record<string, string> }>> = {
  "an address and routes": (sandbox) => ({ config: { master: "up0", ...addresses(sandbox) } }),
  "both families": (sandbox) => ({
    config: {
      master: "up0",
      ...addresses(sandbox, { ranges: [[{ subnet: "10.5.0.0/24" }], [{ subnet: "fd05::/64" }]] }),
    },
  }),
  "no IPAM": () => ({ config: { master: "up0" } }),
  "private": (sandbox) => ({ config: { master: "up0", mode: "private", ...addresses(sandbox) } }),
  "vepa and a smaller MTU": (sandbox) => ({
    config: { master: "up0", mode: "vepa", mtu: 1400, ...addresses(sandbox) },
  }),
  "passthru": (sandbox) => ({ config: { master: "up0", mode: "passthru", ...addresses(sandbox) } }),
  "a MAC address of the configuration": () => ({ config: { master: "up0", mac: "0a:00:00:00:00:07" } }),
  "a MAC address of CNI_ARGS": () => ({
    config: { master: "up0", mac: "0a:00:00:00:00:07" },
    env: { CNI_ARGS: "IgnoreUnknown=1;MAC=0a:00:00:00:00:08" },
  }),
  "a MAC address of the runtime": () => ({
    config: { master: "up0", runtimeConfig: { mac: "0a:00:00:00:00:09" } },
    env: { CNI_ARGS: "MAC=0a:00:00:00:00:08" },
  }),
  "the master of the default route": (sandbox) => ({ config: addresses(sandbox) }),
  "conf dns": (sandbox) => ({ config: { master: "up0", dns: { nameservers: ["192.0.2.53"] }, ...addresses(sandbox) } }),
  "a master that does not exist": () => ({ config: { master: "nosuch" } }),
  "an MTU above the master's": () => ({ config: { master: "up0", mtu: 1501 } }),
  "an unknown mode": () => ({ config: { master: "up0", mode: "l2" } }),
};

/** What one of the two made of it: the answers, and what the kernel shows. */
function observe(prepare: (sandbox: Sandbox) => { config: object; env?: Record<string, string> }, isOurs: boolean) {
  using sandbox = newSandbox([host_local]);
  const { host, container } = sandbox;
  // Without a wire, so that nobody waits for duplicates.
  shell(
    host,
    "ip link add up0 address 0a:00:00:00:00:01 type veth peer name far0; ip link set up0 up; ip addr add 10.7.0.1/24 dev up0",
    "ip link set far0 up; ip route add default via 10.7.0.9",
  );
  const { config, env = {} } = prepare(sandbox);
  const call = (verb: "ADD" | "DEL" | "CHECK", more: object = {}): unknown => {
    const document = { cniVersion: "1.0.0", ...config, ...more };
    if (!isOurs) return callReference(sandbox, "macvlan", verb, document, { env });
    try {
      return sandbox.call(macvlan, verb, document, { env });
    } catch {
      return "refused";
    }
  };
  const result = call("ADD");
  const state = stateOf(sandbox);
  const check = result === "refused" || call("CHECK", { prevResult: { cniVersion: "1.0.0", ...result as object } });
  // The reference's DEL wants a configuration that ADD would accept.
  const gone = result === "refused" || call("DEL");
  return normal(
    { result, state, check, gone, left: [linkNames(host), linkNames(container)] },
    container.path,
    state.mac,
  );
}

function stateOf({ container }: Sandbox): Document {
  if (!linkNames(container).includes("eth0")) return {};
  const [{ address, mtu, operstate, flags, linkinfo, link }] = shown(container, "link", "show", "eth0");
  const ips = shown(container, "addr", "show", "eth0")[0].addr_info
    .filter(({ scope }: Document) => scope === "global")
    .map(({ local, prefixlen, broadcast, flags }: Document) => ({ local, prefixlen, broadcast, flags }));
  const routes = [...shown(container, "route", "show"), ...shown(container, "-6", "route", "show")]
    .filter(({ dst }) => !dst.startsWith("fe80")).map(({ flags: _, ...each }) => each);
  const data = { ...linkinfo.info_data, usedbcqueuelen: 0 };
  return { mac: address, mtu, operstate, flags: [...flags].sort(), kind: linkinfo.info_kind, data, link, ips, routes };
}

/** The kernel chooses MAC addresses at random. */
function normal(value: unknown, path: string, mac: string | undefined): Document {
  let text = JSON.stringify(value).replaceAll(path, "SANDBOX");
  if (mac && !mac.startsWith("0a:00:00:00:00:")) text = text.replaceAll(mac, "MAC");
  return JSON.parse(text);
}

for (const [name, prepare] of Object.entries(CASES)) {
  test.skipIf(!existsSync("/usr/lib/cni/macvlan"))(name, () => {
    const theirs = observe(prepare, false);
    expect(observe(prepare, true)).toEqual(theirs);
  });
}
