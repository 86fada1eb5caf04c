/** Random sequences of commands and events, and the networks that they are about, in several variants. @module */
import fc from "fast-check";
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
import { NODE_EVENTS } from "./events.ts";

const VARIANTS = 4;

const ipamOf = (variant: number) => {
  const number = variant === 2 ? 8 : 9;
  return hostLocal({ subnet: `10.${number}.0.0/24` }, { subnet: `fd00:${number}::/64` });
};

const tuning = (variant: number): NetworkPlugin => {
  const { mtu: _mtu, promisc: _promisc, allmulti: _allmulti, ...rest } = TUNING;
  return { ...variant === 3 ? rest : TUNING, ...variant === 0 ? {} : { sysctl: {} } };
};

const chainedPlugins = (variant: number): readonly NetworkPlugin[] => {
  const { egressRate: _rate, egressBurst: _burst, ...ingress } = BANDWIDTH;
  const all = [
    tuning(variant),
    { ...PORTMAP, snat: variant !== 1 },
    [FIREWALL, { type: "firewall" }, { ...FIREWALL, ingressPolicy: "isolated" }, { type: "firewall" }][variant]!,
    [BANDWIDTH, { type: "bandwidth" }, BANDWIDTH, ingress][variant]!,
  ];
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
    tuning(variant),
    { type: "sbr" },
  ],
  "host-device": (variant) => [
    { type: "host-device", device: variant === 1 ? "phys1" : "phys0", ipam: ipamOf(variant) },
    tuning(variant),
  ],
  tap: (variant) => [{ type: "tap", multiQueue: variant === 1, ipam: ipamOf(variant) }, tuning(variant)],
} as const satisfies Record<string, (variant: number) => readonly NetworkPlugin[]>;

export const newNetwork = (kind: keyof typeof CHAINS, name: string, variant: number): Network => ({
  cniVersion: "1.1.0",
  name,
  plugins: CHAINS[kind](variant),
});

export const CONTAINER_COUNT = 3;

const container = fc.nat(CONTAINER_COUNT - 1);
const event = fc.constantFrom(...NODE_EVENTS);
/** CNI_NETNS of DEL: the path of the namespace, none, a path where nothing is, or one of a plain file. */
const netns = fc.constantFrom("path" as const, "path" as const, "empty" as const, "absent" as const, "file" as const);
/** An event in the middle of a command: before which system call, or behind which plugin. */
const meanwhile = fc.option(fc.record({ at: fc.nat(250), event }), { nil: undefined, freq: 2 });

const add = fc.record({ do: fc.constant("add" as const), container, meanwhile });
const del = fc.record({ do: fc.constant("del" as const), container, netns, withoutResult: fc.boolean(), meanwhile });
const step = fc.oneof(
  { weight: 8, arbitrary: add },
  { weight: 5, arbitrary: del },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("check" as const), container }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("gc" as const), valid: fc.uniqueArray(container) }) },
  { weight: 8, arbitrary: fc.record({ do: fc.constant("event" as const), container, event, number: fc.nat(99) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("change" as const), variant: fc.nat(VARIANTS - 1) }) },
  { weight: 1, arbitrary: fc.constant({ do: "rename" as const }) },
);

const KIND_WEIGHTS = { bridge: 6, ptp: 3, macvlan: 1, "host-device": 1, tap: 1 };
const kind = fc.oneof(
  ...(Object.keys(KIND_WEIGHTS) as (keyof typeof CHAINS)[]).map((name) => ({
    weight: KIND_WEIGHTS[name],
    arbitrary: fc.constant(name),
  })),
);

/** A sequence on one node, and the namespace of the DELs in the end. Begins with an ADD: without one nothing can be left. */
export const sequence = fc.record({ kind, first: add, rest: fc.array(step, { minLength: 1, maxLength: 9 }), netns });

type ValueOf<T> = T extends fc.Arbitrary<infer Value> ? Value : never;
export type SequenceStep = ValueOf<typeof step>;
export type Sequence = ValueOf<typeof sequence>;
