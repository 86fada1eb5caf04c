/** The networks that containers are attached to, and what may become of their configuration. @module */

/** The plugin that connects the container. */
export type NetworkKind = keyof typeof CHAINS;

/** A network as it is at a time. */
export interface DetachNetwork {
  readonly kind: NetworkKind;
  readonly name: string;
  /** Which of its configurations. */
  readonly variant: number;
}

/** Addresses that the configurations take turns with. */
const ranges = (second: boolean) =>
  second
    ? [[{ subnet: "10.8.0.0/24" }], [{ subnet: "fd00:8::/64" }]]
    : [[{ subnet: "10.9.0.0/24" }], [{ subnet: "fd00:9::/64" }]];
const routes = [{ dst: "0.0.0.0/0" }, { dst: "::/0" }];
const hostLocal = (variant: number) => ({ type: "host-local", ranges: ranges(variant === 2), routes });

const tuning = (variant: number) => ({
  type: "tuning",
  sysctl: variant === 0 ? { "net.ipv4.conf.IFNAME.log_martians": "1" } : {},
  ...(variant === 3 ? {} : { mtu: 1400, promisc: true, allmulti: true }),
});
const portmap = (variant: number) => ({ type: "portmap", capabilities: { portMappings: true }, snat: variant !== 1 });
const firewall = (variant: number) => ({
  type: "firewall",
  ...(variant === 0 ? { ingressPolicy: "same-bridge" } : variant === 2 ? { ingressPolicy: "isolated" } : {}),
});
const bandwidth = (variant: number) =>
  variant === 1 ? { type: "bandwidth" } : {
    ...{ type: "bandwidth", ingressRate: 8e6, ingressBurst: 8e5 },
    ...(variant === 3 ? {} : { egressRate: 8e6, egressBurst: 8e5 }),
  };
/** What follows the first plugin, in an order that changes too. */
const chainedPlugins = (variant: number) => {
  const all = [tuning(variant), portmap(variant), firewall(variant), bandwidth(variant)];
  return variant === 3 ? all.toReversed() : all;
};

/** By the plugin that connects the container; each takes the number of a variant. */
const CHAINS = {
  bridge: (variant: number) => [{
    type: "bridge",
    ...{ bridge: variant === 1 ? "br1" : "br0", isGateway: true, ipMasq: variant !== 1, hairpinMode: true },
    ...(variant === 3 ? { macspoofchk: true } : {}),
    ipam: hostLocal(variant),
  }, ...chainedPlugins(variant)],
  ptp: (variant: number) => [
    { type: "ptp", ipMasq: variant !== 1, ipam: hostLocal(variant), ...(variant === 3 ? { mtu: 1300 } : {}) },
    ...chainedPlugins(variant),
  ],
  macvlan: (variant: number) => [
    { type: "macvlan", master: variant === 1 ? "up1" : "up0", mode: "bridge", ipam: hostLocal(variant) },
    ...[tuning(variant), { type: "sbr" }],
  ],
  "host-device": (variant: number) => [
    { type: "host-device", device: variant === 1 ? "phys1" : "phys0", ipam: hostLocal(variant) },
    tuning(variant),
  ],
  tap: (variant: number) => [
    { type: "tap", multiQueue: variant === 1, ipam: hostLocal(variant) },
    tuning(variant),
  ],
} as const satisfies Record<string, (variant: number) => readonly { readonly type: string }[]>;

/** How many configurations each network has. */
export const VARIANTS = 4;

/** The plugins of a network, each with its keys. */
export const pluginsOf = ({ kind, variant }: DetachNetwork): readonly { readonly type: string }[] =>
  CHAINS[kind](variant);

/** The network as a configuration list. */
export const networkListOf = (network: DetachNetwork) => ({
  ...{ cniVersion: "1.1.0", name: network.name, plugins: pluginsOf(network) },
});
