/**
 * The `ptp` plugin, point to point: a cable from the container to the host, which routes its packets.
 *
 * @module
 */
import * as link from "../../ffi/route/link.ts";
import { checkCable, collectCables, createCable, removeCable, removeCables } from "../lib/links/veth.ts";
import { removeRules } from "../lib/ruleset/nf_tables_support.ts";
import {
  awaitOperational,
  configure,
  containerInterface,
  expectConfigured,
  expectEqual,
  expectRoute,
  ipsOf,
  removeIfPresent,
} from "../lib/links/interface.ts";
import { deafness, wishSysctls } from "../lib/links/sysctls.ts";
import {
  addMasquerade,
  checkMasquerade,
  collectMasquerade,
  removeMasquerade,
  removeMasqueradeOfMany,
  removeOwnMasquerade,
  restoreMasquerade,
} from "../lib/ruleset/masquerade.ts";
import { formatAlias, type Owner } from "../lib/protocol/owner.ts";
import { type AddCall, cleanUp, plugin, requirePrevResult } from "../lib/protocol/plugin.ts";
import { requireIpam } from "../lib/protocol/require_ipam.ts";
import { requireRuleset } from "../lib/ruleset/inet_table.ts";
import { assign, describe } from "../lib/links/single_interface.ts";
import { checkHostSide, setUpHostSide } from "./host_veth.ts";
import { type GatewayedIp, requireGateways, routesBy, waysOf } from "./routes.ts";
import { boolean, type Infer, int, lazy, object, oneOf, optional, withDefault } from "../../spec/schema.ts";

const ptpConfig = lazy(() =>
  object({
    ipMasq: withDefault(boolean, false),
    /** Accepted for what it means to the reference; the rules are nf_tables' in either case. */
    ipMasqBackend: optional(oneOf("iptables", "nftables")),
    /** Bytes, of both ends; 0 leaves it to the kernel. */
    mtu: withDefault(int({ min: 0, max: 65535 }), 0),
  })
);
type PtpConfig = Infer<typeof ptpConfig>;

export default plugin({
  name: "ptp",
  about: "Connects the container to the host, which routes for it",
  config: ptpConfig,

  add(call) {
    const { host, netns, ifname } = call;
    const { type } = requireIpam(call);
    // First, since a container that is attached already would lose its addresses: whoever asks for some in vain gives back all.
    const { outer, inner } = connect(call);
    const assigned = assign(call, { name: ifname });
    const ips = requireGateways(assigned.ips!, type);
    setUpHostSide(host, outer, ips);
    masquerade(call, ips);
    // Nobody but the host can have the address, and it has others.
    const ways = [...waysOf(ips), ...routesBy(assigned, ips)];
    configure(netns, inner, { ...assigned, routes: [] }, { withoutDad: true, ways, log: call.log });
    awaitOperational(netns, link.get(netns.route, inner.index));
    awaitOperational(host, link.get(host.route, outer.index));
    const onHost = { name: outer.name!, ...outer.mac ? { mac: outer.mac } : {} };
    return {
      ...assigned,
      interfaces: [onHost, describe(call, inner)],
      ips: assigned.ips!.map((ip) => ({ ...ip, interface: CONTAINER })),
    };
  },

  del(call) {
    const { config, host, ifname, ipam, owner, prevResult } = call;
    const addresses = prevResult && ipsOf(prevResult, ifname).map((each) => each.address);
    // Rules before links: both make the kernel wait, and sent in this order it waits once.
    cleanUp(
      () =>
        removeRules(
          host,
          config.ipMasq,
          (nl) => (config.ipMasq ? removeMasquerade : removeOwnMasquerade)(nl, owner, addresses),
        ),
      () => removeCable(call),
      () => ipam?.del(),
    );
  },

  delMany(calls, ipam) {
    const { config, host, request: { name } } = calls[0];
    const rest = new Set<Owner>();
    cleanUp(
      () => {
        if (!config.ipMasq) return;
        for (const each of removeMasqueradeOfMany(host.nft, name, calls.map(({ owner }) => owner))) rest.add(each);
      },
      () => removeCables(calls),
      () => ipam.del(calls).forEach(({ owner }) => rest.add(owner)),
    );
    return calls.filter(({ owner }) => rest.has(owner));
  },

  check(call) {
    const { config, host, netns, ifname, owner } = call;
    const ipam = requireIpam(call);
    ipam.check();
    const result = requirePrevResult(call, "ptp");
    containerInterface(result, ifname, call.sandbox);
    const inner = expectConfigured(netns, ifname, result);
    const outer = checkCable(call, inner);
    const ips = requireGateways(ipsOf(result, ifname), ipam.type);
    for (const { dst, gateway } of waysOf(ips)) expectRoute(netns, inner, { dst, ...gateway ? { gw: gateway } : {} });
    checkHostSide(host, outer, ips);
    if (config.mtu) { for (const each of [inner, outer]) expectEqual(`MTU of "${each.name}"`, each.mtu, config.mtu); }
    if (config.ipMasq) checkMasquerade(host.nft, owner, ips.map((each) => each.address));
  },

  restore(call) {
    const { config, host, ifname, owner } = call;
    const result = requirePrevResult(call, "ptp");
    // Before 0.3.0 results named no interfaces; then all addresses are of this one.
    const ips = result.interfaces?.length ? ipsOf(result, ifname) : result.ips ?? [];
    return config.ipMasq ? restoreMasquerade(host.nft, owner, ips.map((each) => each.address)) : [];
  },

  gc(call) {
    const { config, request, host, ipam, valid } = call;
    cleanUp(
      () => removeRules(host, config.ipMasq, (nl) => collectMasquerade(nl, request.name, valid)),
      () => collectCables(call),
      () => ipam?.gc(),
    );
  },

  status(call) {
    if (call.config.ipMasq) requireRuleset(call.host.nft);
    requireIpam(call).status();
  },
});

/** Where the container's interface stands in the result: behind the host's. */
const CONTAINER = 1;

/** Lays the cable. */
function connect({ config, host, netns, ifname, owner, undo, log }: AddCall<PtpConfig>) {
  const name = createCable(host, { netns, ifname, mtu: config.mtu });
  undo.defer(() => void removeIfPresent(host, name));
  // The alias is what `ip link` shows, and how DEL and GC find the end when all else is gone.
  link.set(host.route, name, { alias: formatAlias(owner) });
  // While it searched for duplicates, the host could ask for nobody's hardware address, and would drop what it is to forward.
  host.run(() => wishSysctls({ ...deafness(name), [`net/ipv6/conf/${name}/accept_dad`]: "0" }, log));
  return { outer: link.get(host.route, name), inner: link.get(netns.route, ifname) };
}

function masquerade({ config, host, owner, undo }: AddCall<PtpConfig>, ips: readonly GatewayedIp[]): void {
  if (!config.ipMasq) return;
  const addresses = ips.map((each) => each.address);
  undo.defer(() => removeMasquerade(host.nft, owner, addresses));
  addMasquerade(host.nft, owner, addresses);
}
