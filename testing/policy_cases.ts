/**
 * Cases of policies by their features, on three namespaces with three pods each: what conformance suites for network
 * policy ask.
 *
 * @module
 */
import type { NamespaceObject } from "../policy/api/namespace.ts";
import type { NetworkPolicyObject } from "../policy/api/network_policy.ts";
import type { PodObject } from "../policy/api/pod.ts";
import { type ClusterChange, type ClusterSteps, LOCAL_NODE, type ProbedFlows } from "./compiled_cluster.ts";
import type { OracleCluster } from "./policy_oracle.ts";

export interface PolicyCase {
  readonly name: string;
  /** After each of them, all pods are tried. */
  readonly steps: ClusterSteps;
}

type Spec = NonNullable<NetworkPolicyObject["spec"]>;
type Selector = NonNullable<Spec["podSelector"]>;
type CasePeer = NonNullable<NonNullable<Spec["ingress"]>[number]["from"]>[number];
type CasePort = NonNullable<NonNullable<Spec["ingress"]>[number]["ports"]>[number];
type Labels = Readonly<Record<string, string>>;
type Direction = "ingress" | "egress";

/** Empty lists of peers and ports are told as they are. */
interface CaseRule {
  readonly peers?: readonly CasePeer[];
  readonly ports?: readonly CasePort[];
}

type CaseRules = Partial<Record<Direction, readonly CaseRule[]>>;

const NAMESPACES = ["x", "y", "z"];
const PODS = ["a", "b", "c"];
const DIRECTIONS: readonly Direction[] = ["ingress", "egress"];
/** The first address of a pod ends with it: four pods are in the blocks that are left out, and five are not. */
const FIRST_ADDRESS = 12;

export const CASE_FLOWS: ProbedFlows = {
  ports: [80, 81],
  protocols: ["TCP", "UDP", "SCTP"],
  outside: ["192.0.2.2", "2001:db8::2"],
};

const everything: Selector = {};
const labelled = (key: string, ...values: readonly string[]): Selector =>
  values.length === 1
    ? { matchLabels: { [key]: values[0]! } }
    : { matchExpressions: [{ key, operator: "In", values: [...values] }] };
const pods = (...names: readonly string[]) => labelled("pod", ...names);
const namespaces = (...names: readonly string[]) => labelled("ns", ...names);
const except = (selector: Selector): Selector => ({
  matchExpressions: Object.entries(selector.matchLabels!).map(([key, value]) => ({
    key,
    operator: "NotIn",
    values: [value],
  })),
});

const tcp = (port?: number | string, endPort?: number): CasePort => portOf("TCP", port, endPort);
const udp = (port?: number | string, endPort?: number): CasePort => portOf("UDP", port, endPort);
const sctp = (port?: number | string, endPort?: number): CasePort => portOf("SCTP", port, endPort);
const anyProtocol = (port?: number | string): CasePort => portOf(undefined, port);

function portOf(protocol: string | undefined, port: number | string | undefined, endPort?: number): CasePort {
  return {
    ...protocol !== undefined && { protocol },
    ...port !== undefined && { port },
    ...endPort !== undefined && { endPort },
  };
}

const DNS: CaseRule = { ports: [udp(53), tcp(53)] };
const ALLOW_ALL: readonly CaseRule[] = [{}];
const DENY_ALL: readonly CaseRule[] = [];

function policyOf(
  name: string,
  namespace: string,
  podSelector: Selector,
  rules: CaseRules,
): ClusterChange {
  const spec: Spec = {
    podSelector,
    policyTypes: Object.keys(rules).map((direction) => direction === "ingress" ? "Ingress" : "Egress"),
    ...rules.ingress && { ingress: rules.ingress.map(({ peers, ports }) => ({ from: peers, ports })) as never },
    ...rules.egress && { egress: rules.egress.map(({ peers, ports }) => ({ to: peers, ports })) as never },
  };
  return { put: "policy", object: { metadata: { uid: `policy-${namespace}-${name}`, namespace, name }, spec } };
}

/** Most cases change one thing of this. */
const BASE: Required<CaseRules> = {
  ingress: [{ ports: [tcp(80)], peers: [{ podSelector: pods("b", "c"), namespaceSelector: namespaces("x", "y") }] }],
  egress: [
    { ports: [tcp(80)], peers: [{ podSelector: pods("a", "b"), namespaceSelector: namespaces("y", "z") }] },
    DNS,
  ],
};

function base(rules: CaseRules = {}, namespace = "x", podSelector = pods("a")): ClusterChange {
  return policyOf("base", namespace, podSelector, { ...BASE, ...rules });
}

/** Changes the first rule of a direction. */
function withFirstRule(direction: Direction, change: CaseRule): ClusterChange {
  const [first, ...others] = BASE[direction];
  return base({ [direction]: [{ ...first, ...change }, ...others] });
}

const inEachDirection = (make: (direction: Direction) => readonly PolicyCase[]): PolicyCase[] =>
  DIRECTIONS.flatMap(make);

const oneStep = (name: string, ...changes: readonly ClusterChange[]): PolicyCase => ({ name, steps: [changes] });

function pairsOf<T>(items: readonly T[]): (readonly [T, T])[] {
  return items.flatMap((first, i) => items.slice(i + 1).map((second) => [first, second] as const));
}

function targetCases(): PolicyCase[] {
  return [
    ...NAMESPACES.map((namespace) => oneStep(`target: namespace ${namespace}`, base({}, namespace))),
    ...[everything, pods("a"), pods("a", "b")].map((selector) =>
      oneStep(`target: pods ${JSON.stringify(selector)}`, base({}, "x", selector))
    ),
  ];
}

function ruleCases(): PolicyCase[] {
  return inEachDirection((direction) => [
    oneStep(`${direction}: no rules`, base({ [direction]: DENY_ALL })),
    oneStep(`${direction}: an empty rule`, base({ [direction]: ALLOW_ALL })),
  ]);
}

/** Each has a block of either family. */
const BLOCKS: Readonly<Record<string, readonly CasePeer[]>> = {
  block: [{ ipBlock: { cidr: "10.1.0.0/24" } }, { ipBlock: { cidr: "fd00:1::/120" } }],
  "block with except": [
    { ipBlock: { cidr: "10.1.0.0/24", except: ["10.1.0.0/28"] } },
    { ipBlock: { cidr: "fd00:1::/120", except: ["fd00:1::/124"] } },
  ],
};

const PEERS: Readonly<Record<string, readonly CasePeer[]>> = {
  "all pods": [{ podSelector: everything }],
  "pods by label": [{ podSelector: pods("c") }],
  "all namespaces": [{ namespaceSelector: everything }],
  "all pods of all namespaces": [{ podSelector: everything, namespaceSelector: everything }],
  "pods by label of all namespaces": [{ podSelector: pods("c"), namespaceSelector: everything }],
  "namespaces by label": [{ namespaceSelector: namespaces("x") }],
  "all pods of namespaces by label": [{ podSelector: everything, namespaceSelector: namespaces("x") }],
  "pods by label of namespaces by label": [{ podSelector: pods("c"), namespaceSelector: namespaces("x") }],
  ...BLOCKS,
};

function peerCases(): PolicyCase[] {
  const kinds = Object.entries(PEERS);
  return inEachDirection((direction) => [
    oneStep(`${direction}: no peers`, withFirstRule(direction, { peers: [] })),
    ...kinds.map(([name, peers]) => oneStep(`${direction}: ${name}`, withFirstRule(direction, { peers }))),
    ...pairsOf(kinds).map(([[name, peers], [other, others]]) =>
      oneStep(`${direction}: ${name}, ${other}`, withFirstRule(direction, { peers: [...peers, ...others] }))
    ),
  ]);
}

const portName = (protocol: string, port: number) => `serve-${port}-${protocol.toLowerCase()}`;

const SINGLE_PORTS: readonly CasePort[] = [
  ...[anyProtocol, tcp, udp, sctp].flatMap((of) => [of(), of(80), of(81)]),
  ...CASE_FLOWS.protocols.flatMap((protocol) => [80, 81].map((port) => portOf(protocol, portName(protocol, port)))),
  ...[tcp, udp, sctp].flatMap((of) => [of(53, 80), of(53, 84)]),
  // A name of another protocol, a name and a number that nobody serves.
  tcp("serve-81-udp"),
  tcp("serve-7981-udp"),
  tcp(7981),
];

const PORT_PAIRS: readonly (readonly CasePort[])[] = [
  [anyProtocol(), anyProtocol(80)],
  [anyProtocol(), anyProtocol("serve-80-tcp")],
  [anyProtocol(), udp()],
  [anyProtocol(80), anyProtocol(81)],
  [anyProtocol(80), anyProtocol("serve-81-tcp")],
  [anyProtocol(80), udp("serve-81-udp")],
  [udp(80), udp("serve-81-udp")],
];

function portCases(): PolicyCase[] {
  return inEachDirection((direction) =>
    [[], ...SINGLE_PORTS.map((port) => [port]), ...PORT_PAIRS].map((ports) =>
      oneStep(`${direction}: ports ${JSON.stringify(ports)}`, withFirstRule(direction, { ports }))
    )
  );
}

const LEFT_OUT: readonly CaseRule[] = [{ peers: [{ namespaceSelector: labelled("nobody", "has-this") }] }];
const LEFT_OUT_BLOCK: readonly CaseRule[] = [{
  peers: [{ ipBlock: { cidr: "0.0.0.0/31" } }, { ipBlock: { cidr: "::/127" } }],
}];
const ALL_PODS: readonly CaseRule[] = [{ peers: [{ namespaceSelector: everything }] }];
const ALL_BLOCKS: readonly CaseRule[] = [{
  peers: [{ ipBlock: { cidr: "0.0.0.0/0" } }, { ipBlock: { cidr: "::/0" } }],
}];

/** Two policies, of which one allows what the other one does not. */
const CONTRADICTIONS: readonly (readonly [name: string, first: readonly CaseRule[], second: readonly CaseRule[]])[] = [
  ["none, and all", DENY_ALL, ALLOW_ALL],
  ["none, and all pods", DENY_ALL, ALL_PODS],
  ["none, and all addresses", DENY_ALL, ALL_BLOCKS],
  ["a block without pods, and all pods", LEFT_OUT_BLOCK, ALL_PODS],
  ["pods that do not exist, and all addresses", LEFT_OUT, ALL_BLOCKS],
];

function conflictCases(): PolicyCase[] {
  const [source, destination] = [["x", pods("b")], ["y", pods("c")]] as const;
  const from = (name: string, egress: readonly CaseRule[]) => policyOf(name, ...source, { egress });
  const to = (name: string, ingress: readonly CaseRule[]) => policyOf(name, ...destination, { ingress });
  const dns = from("dns", [DNS]);
  return [
    oneStep(
      "conflict: the source may send nothing, the destination get all",
      from("none", DENY_ALL),
      to("all", ALLOW_ALL),
      dns,
    ),
    oneStep(
      "conflict: the source may send all, the destination get nothing",
      from("all", ALLOW_ALL),
      to("none", DENY_ALL),
      dns,
    ),
    ...CONTRADICTIONS.flatMap(([name, first, second]) => [
      oneStep(`conflict: egress: ${name}`, from("first", first), from("second", second), dns),
      oneStep(`conflict: ingress: ${name}`, to("first", first), to("second", second)),
    ]),
    ...[["a block without pods", LEFT_OUT_BLOCK] as const, ["pods that do not exist", LEFT_OUT] as const].flatMap(
      ([name, rules]) => [
        oneStep(`conflict: egress: ${name}`, from("first", rules), dns),
        oneStep(`conflict: ingress: ${name}`, to("first", rules)),
      ],
    ),
  ];
}

function changeCases(): PolicyCase[] {
  const relabelled = (labels: Labels) => ({ put: "namespace", object: namespaceOf("y", labels) }) as const;
  const peers = [{ namespaceSelector: labelled("new-ns", "qrs") }];
  const newPodPeers = [{ podSelector: labelled("new-label", "abc"), namespaceSelector: namespaces("y", "z") }];
  return [
    { name: "change: a policy comes and goes", steps: [[base()], [{ remove: "policy", key: "x/base" }]] },
    {
      name: "change: a policy gets other ports",
      steps: [[base()], [withFirstRule("ingress", { ports: [udp("serve-81-udp")] })]],
    },
    {
      name: "change: a namespace comes and goes",
      steps: [
        [base()],
        [
          { put: "namespace", object: namespaceOf("y-2", { ns: "y" }) },
          { put: "pod", object: podOf("y-2", "a", 9) },
          { put: "pod", object: podOf("y-2", "b", 10) },
        ],
        [
          { remove: "pod", key: "pod-y-2-a" },
          { remove: "pod", key: "pod-y-2-b" },
          { remove: "namespace", key: "y-2" },
        ],
      ],
    },
    {
      name: "change: a namespace is selected, and no more",
      steps: [
        [withFirstRule("ingress", { peers })],
        [relabelled({ ns: "y", "new-ns": "qrs" })],
        [relabelled({ ns: "y" })],
      ],
    },
    {
      name: "change: a pod comes and goes",
      steps: [[base()], [{ put: "pod", object: podOf("x", "d", 9) }], [{ remove: "pod", key: "pod-x-d" }]],
    },
    {
      name: "change: a pod is selected, and no more",
      steps: [
        [withFirstRule("ingress", { peers: newPodPeers })],
        [{ put: "pod", object: podOf("y", "b", 4, { pod: "b", "new-label": "abc" }) }],
        [{ put: "pod", object: podOf("y", "b", 4) }],
      ],
    },
  ];
}

function exampleCase(): PolicyCase {
  return {
    name: "example: one named port, and a namespace that comes and goes",
    steps: [
      [policyOf("named", "x", everything, { ingress: [{ ports: [anyProtocol("serve-81-tcp")] }] })],
      [{ put: "namespace", object: namespaceOf("w") }, { put: "pod", object: podOf("w", "a", 9) }],
      [{ remove: "pod", key: "pod-w-a" }],
      [{ remove: "namespace", key: "w" }],
    ],
  };
}

/** A label that the API server itself gives namespaces. */
function namespaceLabelCases(): PolicyCase[] {
  const peers = [{ namespaceSelector: labelled("kubernetes.io/metadata.name", "z") }];
  return inEachDirection((direction) => [
    oneStep(`${direction}: namespace by its name's label`, withFirstRule(direction, { peers })),
  ]);
}

/** What Kubernetes' own tests ask. */
function upstreamCases(): PolicyCase[] {
  const inX = (rules: CaseRules, selector = everything) => policyOf("policy", "x", selector, rules);
  const fromY = (port: number) =>
    policyOf(`from-y-${port}`, "x", pods("a"), {
      ingress: [{ peers: [{ namespaceSelector: namespaces("y") }], ports: [tcp(port)] }],
    });
  const fromXa = (pod: string) =>
    policyOf(`from-x-a-to-${pod}`, "y", pods(pod), {
      ingress: [{ peers: [{ namespaceSelector: namespaces("x"), podSelector: pods("a") }] }],
    });
  const toYa: CaseRule = { peers: [{ namespaceSelector: namespaces("y"), podSelector: pods("a") }] };
  const notX = { namespaceSelector: except(namespaces("x")), podSelector: pods("b", "c") };
  return [
    oneStep("upstream: no ingress", inX({ ingress: DENY_ALL })),
    oneStep("upstream: nothing but DNS", inX({ ingress: DENY_ALL, egress: [DNS] })),
    oneStep("upstream: pods of namespaces without a label", inX({ ingress: [{ peers: [notX] }] }, pods("a"))),
    { name: "upstream: policies with overlapping selectors", steps: [[fromY(81)], [fromY(80)]] },
    oneStep("upstream: an empty ingress rule", inX({ ingress: ALLOW_ALL })),
    oneStep("upstream: one named port", inX({ ingress: [{ ports: [anyProtocol("serve-81-tcp")] }] })),
    { name: "upstream: an updated policy", steps: [[inX({ ingress: ALLOW_ALL })], [inX({ ingress: DENY_ALL })]] },
    {
      name: "upstream: ingress from an updated namespace",
      steps: [
        [inX({ ingress: [{ peers: [{ namespaceSelector: labelled("ns2", "updated") }] }] }, pods("a"))],
        [{ put: "namespace", object: namespaceOf("y", { ns: "y", ns2: "updated" }) }],
      ],
    },
    {
      name: "upstream: ingress from an updated pod",
      steps: [
        [inX({ ingress: [{ peers: [{ podSelector: { matchLabels: { pod: "b", pod2: "updated" } } }] }] }, pods("a"))],
        [{ put: "pod", object: podOf("x", "b", 1, { pod: "b", pod2: "updated" }) }],
      ],
    },
    {
      name: "upstream: no ingress to an updated pod",
      steps: [
        [inX({ ingress: DENY_ALL }, labelled("target", "isolated"))],
        [{ put: "pod", object: podOf("x", "a", 0, { target: "isolated" }) }],
      ],
    },
    oneStep(
      "upstream: both directions",
      inX({ ingress: [{ peers: [{ podSelector: pods("b") }] }], egress: [{ ports: [tcp(80), udp(53)] }] }, pods("a")),
    ),
    oneStep(
      "upstream: egress that is not allowed, to pods that allow it",
      inX({ egress: [toYa, { ports: [udp(53)] }] }, pods("a")),
      fromXa("a"),
      fromXa("b"),
    ),
    {
      name: "upstream: a policy that goes",
      steps: [[inX({ ingress: DENY_ALL, egress: DENY_ALL })], [{ remove: "policy", key: "x/policy" }]],
    },
  ];
}

export function policyCases(): readonly PolicyCase[] {
  return [
    ...targetCases(),
    ...ruleCases(),
    ...peerCases(),
    ...portCases(),
    exampleCase(),
    ...changeCases(),
    ...conflictCases(),
    ...namespaceLabelCases(),
    ...upstreamCases(),
  ];
}

/** All pods are on the node, and serve each port under a name. */
export function caseCluster(): OracleCluster {
  return {
    namespaces: NAMESPACES.map((name) => namespaceOf(name)),
    pods: NAMESPACES.flatMap((namespace, i) => PODS.map((name, j) => podOf(namespace, name, i * PODS.length + j))),
    policies: [],
  };
}

function namespaceOf(name: string, labels: Labels = { ns: name }): NamespaceObject {
  return {
    metadata: { uid: `namespace-${name}`, name, labels: { "kubernetes.io/metadata.name": name, ...labels } },
  };
}

function podOf(namespace: string, name: string, number: number, labels: Labels = { pod: name }): PodObject {
  const last = FIRST_ADDRESS + number;
  const ports = CASE_FLOWS.protocols.flatMap((protocol) =>
    CASE_FLOWS.ports.map((port) => ({ name: portName(protocol, port), containerPort: port, protocol }))
  );
  return {
    metadata: { uid: `pod-${namespace}-${name}`, namespace, name, labels },
    spec: { nodeName: LOCAL_NODE, containers: [{ ports }] },
    status: { phase: "Running", podIPs: [{ ip: `10.1.0.${last}` }, { ip: `fd00:1::${last.toString(16)}` }] },
  };
}
