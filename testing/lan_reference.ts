/**
 * The same requests for a reference plugin and for ours, on a wire: what the kernel shows afterwards, and the results, must be the same.
 *
 * @module
 */
import { expect } from "bun:test";
import type { JsonDocument } from "./json_document.ts";
import { ipShow, linkNames, runShellInNetns } from "./netns.ts";
import host_local from "../plugins/host_local/plugin.ts";
import type { AnyPlugin } from "../plugins/lib/protocol/context.ts";
import { newSandbox, type Sandbox } from "./sandbox.ts";
import { callReference, referenceTest } from "./reference.ts";

export interface ReferenceCase {
  readonly config: object;
  readonly env?: Readonly<Record<string, string>>;
}
/** Cases by the name of their test. */
export type ReferenceCases = Readonly<Record<string, (sandbox: Sandbox) => ReferenceCase>>;

/** The configuration of host-local with a subnet on the wire, its state in the sandbox. */
export function lanHostLocalIpam({ directory }: Sandbox, extra: object = {}): { readonly ipam: object } {
  return {
    ipam: {
      type: "host-local",
      dataDir: `${directory}/ipam`,
      ranges: [[{ subnet: "10.5.0.0/24", gateway: "10.5.0.1" }]],
      routes: [{ dst: "0.0.0.0/0" }, { dst: "10.9.0.0/16", gw: "10.5.0.9" }],
      ...extra,
    },
  };
}

/** A test for each case, in which `up0` is the master and the link of the default route. */
export function compareWithReference(plugin: AnyPlugin, cases: ReferenceCases): void {
  for (const [name, prepare] of Object.entries(cases)) {
    referenceTest(plugin.name)(name, () => {
      const theirs = observe(plugin, prepare, false);
      expect(observe(plugin, prepare, true)).toEqual(theirs);
    });
  }
}

/** The outcome of one of the two: the answers, and what the kernel shows. */
function observe(plugin: AnyPlugin, prepare: (sandbox: Sandbox) => ReferenceCase, isOurs: boolean): JsonDocument {
  using sandbox = newSandbox([host_local]);
  const { host, container } = sandbox;
  runShellInNetns(
    host,
    "ip link add up0 address 0a:00:00:00:00:01 type veth peer name far0; ip link set up0 up; ip link set far0 up",
    "ip addr add 10.7.0.1/24 dev up0; ip route add default via 10.7.0.9",
  );
  const { config, env = {} } = prepare(sandbox);
  const call = (verb: "ADD" | "DEL" | "CHECK", more: object = {}): unknown => {
    const document = { cniVersion: "1.0.0", ...config, ...more };
    if (!isOurs) return callReference(sandbox, plugin.name, verb, document, { env });
    try {
      return sandbox.call(plugin, verb, document, { env });
    } catch {
      return "refused";
    }
  };
  const result = call("ADD");
  // The reference's DEL wants a configuration that ADD would accept, and leaves what a failed ADD made.
  if (result === "refused") return result;
  const state = stateOf(sandbox);
  const check = call("CHECK", { prevResult: { cniVersion: "1.0.0", ...result as object } });
  const delResult = call("DEL");
  const remainingLinks = [linkNames(host), linkNames(container)];
  return normalize({ result, state, check, gone: delResult, left: remainingLinks }, container.path, state.mac);
}

function stateOf({ container }: Sandbox): JsonDocument {
  const [{ address, mtu, flags, linkinfo, link, link_index }] = ipShow(container, "link", "show", "eth0");
  const ips = ipShow(container, "addr", "show", "eth0")[0].addr_info
    .filter(({ scope }: JsonDocument) => scope === "global")
    .map(({ local, prefixlen, broadcast, flags }: JsonDocument) => ({ local, prefixlen, broadcast, flags }));
  const routes = [...ipShow(container, "route", "show"), ...ipShow(container, "-6", "route", "show")]
    .filter(({ dst }) => !dst.startsWith("fe80")).map(({ flags: _, ...each }) => each);
  // How long a queue is at the moment is chance.
  const data = { ...linkinfo.info_data, usedbcqueuelen: 0 };
  const kind = linkinfo.info_kind;
  return { mac: address, mtu, flags: [...flags].sort(), kind, data, link, link_index, ips, routes };
}

/** The kernel chooses MAC addresses at random. */
function normalize(value: unknown, path: string, mac: string): JsonDocument {
  const text = JSON.stringify(value).replaceAll(path, "SANDBOX");
  return JSON.parse(mac.startsWith("0a:00:00:00:00:") ? text : text.replaceAll(mac, "MAC"));
}
