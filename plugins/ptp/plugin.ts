/**
 * The `ptp` plugin, point to point: a veth pair between the container and the host, which routes its packets.
 *
 * @module
 */
import * as link from "../../ffi/route/link.ts";
import { checkVethPair, createVethPair, gcVethPairs, removeVethPair, removeVethPairs } from "../lib/links/veth_pair.ts";
import { removeRulesIfSupported } from "../lib/ruleset/nf_tables_support.ts";
import { awaitLinkOperational, configureInterface, ipsOf } from "../lib/links/configure_interface.ts";
import {
  type AddressScope,
  claimAddresses,
  lives,
  livesElsewhere,
  routingTableOf,
} from "../lib/links/address_claim.ts";
import { removeLinkIfPresent } from "../lib/links/container_link.ts";
import { expectConfigured, expectRoute, requireContainerInterface } from "../lib/links/check_interface.ts";
import { expectEqual } from "../lib/protocol/check_failed.ts";
import { disableRouterAdvertisements, skipDuplicateDetection, trySysctls } from "../lib/links/sysctls.ts";
import {
  addMasquerade,
  checkMasquerade,
  gcMasquerade,
  removeMasquerade,
  removeMasqueradeBatch,
  removeMasqueradeForDel,
  restoreMasquerade,
} from "../lib/ruleset/masquerade.ts";
import { formatAlias, type Owner, parseAlias } from "../lib/protocol/owner.ts";
import { type AddCall, cleanUp, plugin, requirePrevResult } from "../lib/protocol/plugin.ts";
import { requireIpam } from "../lib/protocol/require_ipam.ts";
import { requireInetTable } from "../lib/ruleset/inet_table.ts";
import { assignAddresses, describeInterface } from "../lib/links/single_interface.ts";
import {
  checkForwarding,
  configuredSubnets,
  describeForeignRoutes,
  describeMissingDefaultRoute,
  describeUnforwarded,
  describeUnforwardedLink,
  distinctFamilies,
} from "../lib/links/reachability.ts";
import { checkHostVeth, setUpHostVeth } from "./host_veth.ts";
import { connectedRoutes, type IpWithGateway, requireHostGateways, resultRoutes } from "./routes.ts";
import { type PtpConfig, ptpConfig } from "./config.ts";

export default plugin({
  name: "ptp",
  about: "Connects the container to the host, which routes for it",
  config: ptpConfig,

  add(call) {
    const { host, netns, ifname } = call;
    const { type } = requireIpam(call);
    // First, since a container that is attached already would lose its addresses: whoever asks for some in vain gives back all.
    const { outer: hostVeth, inner: containerVeth } = createVeths(call);
    const ipamResult = assignAddresses(call, { name: ifname });
    const ips = requireHostGateways(ipamResult.ips!, type);
    // The host routes to the container's addresses by its main table.
    const scope: AddressScope = { table: routingTableOf(host, hostVeth) };
    claimAddresses(host, call.owner, hostVeth.name!, scope, ips.map((ip) => ip.address));
    setUpHostVeth(host, hostVeth, ips);
    addMasqueradeFor(call, ips, scope);
    // Nobody but the host can have the address, and it has others.
    const routes = [...connectedRoutes(ips), ...resultRoutes(ipamResult, ips)];
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

  del(call) {
    const { ifname, ipam, prevResult } = call;
    const addresses = prevResult && ipsOf(prevResult, ifname).map((ip) => ip.address);
    // Rules before links: both make the kernel wait, and sent in this order it waits once.
    cleanUp(
      () => removeMasqueradeForDel(call, addresses),
      () => removeVethPair(call),
      () => ipam?.del(),
    );
  },

  delBatch(calls, ipam) {
    const { config, host, pluginConfig: { name } } = calls[0];
    const unfinished = new Set<Owner>();
    cleanUp(
      () => {
        if (!config.ipMasq) return;
        for (const remaining of removeMasqueradeBatch(host.nft, name, calls.map(({ owner }) => owner))) {
          unfinished.add(remaining);
        }
      },
      () => removeVethPairs(calls),
      () => ipam.del(calls).forEach(({ owner }) => unfinished.add(owner)),
    );
    return calls.filter(({ owner }) => unfinished.has(owner));
  },

  check(call) {
    const { config, host, netns, ifname, owner } = call;
    const ipam = requireIpam(call);
    ipam.check();
    const result = requirePrevResult(call, "ptp");
    requireContainerInterface(result, ifname, call.sandbox);
    const containerVeth = expectConfigured(netns, ifname, result);
    const hostVeth = checkVethPair(call, containerVeth);
    const ips = requireHostGateways(ipsOf(result, ifname), ipam.type);
    for (const { dst, gateway } of connectedRoutes(ips)) {
      expectRoute(netns, containerVeth, { dst, ...gateway ? { gw: gateway } : {} });
    }
    checkHostVeth(host, hostVeth, ips);
    checkForwarding(host, distinctFamilies(ips.map(({ gateway }) => gateway)));
    if (config.mtu) {
      for (const veth of [containerVeth, hostVeth]) expectEqual(`MTU of "${veth.name}"`, veth.mtu, config.mtu);
    }
    if (config.ipMasq) checkMasquerade(host.nft, owner, ips.map((ip) => ip.address), lives(host));
  },

  restore(call) {
    const { config, host, ifname, owner } = call;
    const result = requirePrevResult(call, "ptp");
    // Before 0.3.0 results named no interfaces; then all addresses are of this one.
    const ips = result.interfaces?.length ? ipsOf(result, ifname) : result.ips ?? [];
    return config.ipMasq ? restoreMasquerade(host.nft, owner, ips.map((ip) => ip.address), lives(host)) : [];
  },

  gc(call) {
    const { config, pluginConfig, host, ipam, validAttachments } = call;
    cleanUp(
      () =>
        removeRulesIfSupported(
          host,
          config.ipMasq,
          (nl) => gcMasquerade(nl, pluginConfig.name, validAttachments, call.log),
        ),
      () => gcVethPairs(call),
      () => ipam?.gc(),
    );
  },

  status(call) {
    if (call.config.ipMasq) requireInetTable(call.host.nft);
    requireIpam(call).status();
  },

  diagnose({ config, host, pluginConfig: { name, raw } }) {
    const subnets = configuredSubnets(raw);
    const families = distinctFamilies(subnets);
    const isOwn = ({ alias }: link.Link) => parseAlias(alias)?.network === name;
    const hostVeths = link.list(host.route).filter(isOwn);
    return [
      // Before the first ADD, nobody has turned it on.
      ...hostVeths.length > 0 ? describeUnforwarded(host, families, "the next ADD turns it on") : [],
      ...hostVeths.flatMap((hostVeth) => describeUnforwardedLink(host, hostVeth)),
      ...config.ipMasq ? describeMissingDefaultRoute(host, families) : [],
      ...describeForeignRoutes(host, subnets, isOwn),
    ];
  },
});

/** Where the container's interface stands in the result: behind the host's. */
const CONTAINER_INTERFACE_INDEX = 1;

/** Makes the veth pair. */
function createVeths({ config, host, netns, ifname, owner, undo, log }: AddCall<PtpConfig>) {
  const name = createVethPair(host, { netns, ifname, mtu: config.mtu });
  undo.defer(() => void removeLinkIfPresent(host, name));
  // The alias is what `ip link` shows, and how DEL and GC find the end when all else is gone.
  link.set(host.route, name, { alias: formatAlias(owner) });
  host.run(() => trySysctls({ ...disableRouterAdvertisements(name), ...skipDuplicateDetection(name) }, log));
  return { outer: link.get(host.route, name), inner: link.get(netns.route, ifname) };
}

function addMasqueradeFor(
  { config, host, owner, undo }: AddCall<PtpConfig>,
  ips: readonly IpWithGateway[],
  scope: AddressScope,
): void {
  if (!config.ipMasq) return;
  const addresses = ips.map((ip) => ip.address);
  undo.defer(() => removeMasquerade(host.nft, owner, addresses));
  addMasquerade(host.nft, owner, addresses, livesElsewhere(host, owner, scope));
}
