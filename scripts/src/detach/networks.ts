/** The networks that containers are attached to, in several variants of their configuration. @module */
import {
  BANDWIDTH,
  bridgePlugin,
  FIREWALL,
  hostLocal,
  type Network,
  type NetworkPlugin,
  PORTMAP,
  TUNING,
} from "../harness/networks.ts";

/** The plugin that connects the container. */
export type NetworkKind = keyof typeof CHAINS;

/** A network as it is at a time. */
export interface DetachNetwork {
  readonly kind: NetworkKind;
  readonly name: string;
  /** Which of its configurations. */
  readonly variant: number;
}

const ipamOf = (variant: number) => {
  const number = variant === 2 ? 8 : 9;
  return hostLocal({ subnet: `10.${number}.0.0/24` }, { subnet: `fd00:${number}::/64` });
};

const tuning = (variant: number): NetworkPlugin => {
  const { mtu: _mtu, promisc: _promisc, allmulti: _allmulti, ...rest } = TUNING;
  return { ...variant === 3 ? rest : TUNING, ...variant === 0 ? {} : { sysctl: {} } };
};
const firewall = (variant: number): NetworkPlugin =>
  [FIREWALL, { type: "firewall" }, { ...FIREWALL, ingressPolicy: "isolated" }, { type: "firewall" }][variant];
const bandwidth = (variant: number): NetworkPlugin => {
  const { egressRate: _rate, egressBurst: _burst, ...ingress } = BANDWIDTH;
  return [BANDWIDTH, { type: "bandwidth" }, BANDWIDTH, ingress][variant];
};
/** What follows the first plugin, in an order that changes too. */
const chainedPlugins = (variant: number): readonly NetworkPlugin[] => {
  const all = [tuning(variant), { ...PORTMAP, snat: variant !== 1 }, firewall(variant), bandwidth(variant)];
  return variant === 3 ? all.toReversed() : all;
};

/** By the plugin that connects the container; each takes the number of a variant. */
const CHAINS = {
  bridge: (variant) => [
    {
      ...bridgePlugin(variant === 1 ? "br1" : "br0", ipamOf(variant)),
      ...variant === 1 ? { ipMasq: false } : {},
      ...variant === 3 ? { macspoofchk: true } : {},
    },
    ...chainedPlugins(variant),
  ],
  ptp: (variant) => [
    { type: "ptp", ipMasq: variant !== 1, ipam: ipamOf(variant), ...variant === 3 ? { mtu: 1300 } : {} },
    ...chainedPlugins(variant),
  ],
  macvlan: (variant) => [
    { type: "macvlan", master: variant === 1 ? "up1" : "up0", mode: "bridge", ipam: ipamOf(variant) },
    ...[tuning(variant), { type: "sbr" }],
  ],
  "host-device": (variant) => [
    { type: "host-device", device: variant === 1 ? "phys1" : "phys0", ipam: ipamOf(variant) },
    tuning(variant),
  ],
  tap: (variant) => [{ type: "tap", multiQueue: variant === 1, ipam: ipamOf(variant) }, tuning(variant)],
} as const satisfies Record<string, (variant: number) => readonly NetworkPlugin[]>;

/** How many configurations each network has. */
export const VARIANTS = 4;

/** The network as a configuration list. */
export const networkListOf = ({ name, kind, variant }: DetachNetwork): Network => ({
  ...{ cniVersion: "1.1.0", name, plugins: CHAINS[kind](variant) },
});
