/** The `ptp` plugin, point to point: a veth pair to the host, which routes the packets. */
import * as link from "../../ffi/route/link.ts";
import { createVethPair } from "../lib/veth/veth_pair.ts";
import { awaitLinkOperational, configureInterface } from "../lib/links/configure_interface.ts";
import { claimAddresses, routingTableOf } from "../lib/links/address_claim.ts";
import { removeLinkIfPresent } from "../lib/links/container_link.ts";
import { disableRouterAdvertisements, skipDuplicateDetection, trySysctls } from "../lib/links/sysctls.ts";
import {
  detachVeth,
  detachVeths,
  gcVeths,
  masqueradeAddresses,
  restoreMasqueraded,
} from "../lib/veth/masqueraded_veth.ts";
import { configuredNetworks } from "../lib/links/host_networks.ts";
import { formatAlias } from "../lib/model/owner.ts";
import { type AddCall, plugin } from "../lib/protocol/plugin.ts";
import { requireIpam, requireIpamType } from "../lib/protocol/require_ipam.ts";
import { inetTable } from "../lib/ruleset/inet_table.ts";
import { requireTable } from "../lib/ruleset/table.ts";
import { assignAddresses, describeInterface } from "../lib/links/single_interface.ts";
import type { PluginModel } from "../lib/model/plugin_model.ts";
import { ptpConfig, ptpNetwork } from "./config.ts";
import { setUpHostVeth } from "./host_veth.ts";
import { refuseConfiguredOverlap, refuseOverlapOnce } from "./overlap.ts";
import { connectedRoutes, requireHostGateways, resultRoutes } from "./routes.ts";

/** The host's interface comes before it in the result. */
const CONTAINER_INTERFACE_INDEX = 1;

export default plugin({
  name: "ptp",
  about: "Connects the container to the host, and routes its packets",
  config: ptpConfig,
  model: (): PluginModel => require("./model.ts").default,
  validate: ({ pluginConfig }) => requireIpamType(pluginConfig),

  add(call) {
    const { host, netns, ifname } = call;
    const { type } = requireIpam(call);
    // Before IPAM: if the container is already attached, the failed ADD would release its addresses.
    const { hostVeth, containerVeth } = createVeths(call);
    const ipamResult = assignAddresses(call, { name: ifname });
    const ips = requireHostGateways(ipamResult.ips!, type);
    const scope = { table: routingTableOf(host, hostVeth) };
    claimAddresses(host, call.owner, hostVeth.name!, scope, ips.map((ip) => ip.address));
    if (!call.config.allowRouteOverlap) refuseOverlapOnce(host, hostVeth, ips);
    setUpHostVeth(call, hostVeth, ips);
    masqueradeAddresses(call, scope, ips);
    const routes = [...connectedRoutes(ips), ...resultRoutes(ipamResult, ips)];
    // No duplicate address detection: only the host could have the address, and it has others.
    configureInterface(netns, containerVeth, { ...ipamResult, routes: [] }, { noDad: true, routes, log: call.log });
    awaitLinkOperational(netns, link.get(netns.route, containerVeth.index));
    awaitLinkOperational(host, link.get(host.route, hostVeth.index));
    const hostInterface = { name: hostVeth.name!, ...hostVeth.mac ? { mac: hostVeth.mac } : {} };
    return {
      ...ipamResult,
      interfaces: [hostInterface, describeInterface(call, containerVeth)],
      ips: ipamResult.ips!.map((ip) => ({ ...ip, interface: CONTAINER_INTERFACE_INDEX })),
    };
  },

  del: (call) => detachVeth(call),

  delBatch: (calls, ipam) => detachVeths(calls, ipam),

  check: (call) => loadCheck().checkPtpAttachment(call),

  restore: (call) => restoreMasqueraded(call, "ptp"),

  gc: (call) => gcVeths(call),

  status(call) {
    const { config, host, pluginConfig } = call;
    if (config.ipMasq) requireTable(host.nft, inetTable);
    requireIpam(call).status();
    if (!config.allowRouteOverlap) refuseConfiguredOverlap(host, configuredNetworks(pluginConfig.raw));
  },

  diagnose: (call) => loadDiagnosis().diagnoseNetwork(call, ptpNetwork(call.config)),
});

/** ADD and DEL do without it. */
function loadCheck(): typeof import("./check.ts") {
  return require("./check.ts");
}

/** Only `cni run status` and `check` need it. */
function loadDiagnosis(): typeof import("../lib/links/network_diagnosis.ts") {
  return require("../lib/links/network_diagnosis.ts");
}

function createVeths({ config, host, netns, ifname, owner, undo, log }: AddCall<{ readonly mtu: number }>) {
  const name = createVethPair(host, { netns, ifname, mtu: config.mtu });
  undo.defer(() => void removeLinkIfPresent(host, name));
  // By the alias, DEL and GC find the host veth when all else is gone.
  link.set(host.route, name, { alias: formatAlias(owner) });
  host.run(() => trySysctls({ ...disableRouterAdvertisements(name), ...skipDuplicateDetection(name) }, log));
  return { hostVeth: link.get(host.route, name), containerVeth: link.get(netns.route, ifname) };
}
