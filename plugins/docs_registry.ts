/** The documentation of the plugins, which no call of a plugin loads. @module */
import type { PluginDocs } from "./lib/docs/plugin_docs.ts";
import { pluginNames } from "./registry.ts";

const DOCS_MODULES: Readonly<Record<string, () => Promise<{ readonly default: PluginDocs }>>> = {
  bandwidth: () => import("./bandwidth/docs.ts"),
  bridge: () => import("./bridge/docs.ts"),
  dhcp: () => import("./dhcp/docs.ts"),
  dnsname: () => import("./dnsname/docs.ts"),
  dummy: () => import("./dummy/docs.ts"),
  firewall: () => import("./firewall/docs.ts"),
  "host-device": () => import("./host_device/docs.ts"),
  "host-local": () => import("./host_local/docs.ts"),
  ipvlan: () => import("./ipvlan/docs.ts"),
  loopback: () => import("./loopback/docs.ts"),
  macvlan: () => import("./macvlan/docs.ts"),
  "network-policy": () => import("./network_policy/docs.ts"),
  portmap: () => import("./portmap/docs.ts"),
  ptp: () => import("./ptp/docs.ts"),
  sbr: () => import("./sbr/docs.ts"),
  static: () => import("./static/docs.ts"),
  tap: () => import("./tap/docs.ts"),
  tuning: () => import("./tuning/docs.ts"),
  vlan: () => import("./vlan/docs.ts"),
  vrf: () => import("./vrf/docs.ts"),
};

const loadedDocs: Record<string, PluginDocs> = Object.create(null);

export async function loadPluginDocs(): Promise<void> {
  for (const name of pluginNames()) loadedDocs[name] ??= (await DOCS_MODULES[name]!()).default;
}

export function builtinDocs(name: string): PluginDocs | undefined {
  return loadedDocs[name];
}
