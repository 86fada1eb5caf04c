/** What no version of the API has today isolates, and allows nothing. */
import { expect, test } from "bun:test";
import { type NetworkPolicyObject, parseNetworkPolicy } from "./network_policy.ts";

const METADATA = { uid: "u", namespace: "web", name: "p" };
const parse = (spec: object) => parseNetworkPolicy({ metadata: METADATA, spec } as NetworkPolicyObject);
const strange = { matchExpressions: [{ key: "a", operator: "Gt", values: ["1"] }] };
const PROBLEM = 'operator "Gt" is none of In, NotIn, Exists, DoesNotExist';

test("types have defaults, also of an empty list", () => {
  const typesOf = (spec: object) => [parse(spec).ingress !== undefined, parse(spec).egress !== undefined];
  expect(typesOf({})).toEqual([true, false]);
  expect(typesOf({ egress: [] })).toEqual([true, false]);
  expect(typesOf({ egress: [{}] })).toEqual([true, true]);
  expect(typesOf({ policyTypes: [], egress: [{}] })).toEqual([true, true]);
  expect(typesOf({ policyTypes: ["Egress"] })).toEqual([false, true]);
});

test("peers that nobody knows are nobody, beside those that are known", () => {
  const policy = parse({
    podSelector: {},
    ingress: [
      { from: [{ podSelector: strange }, { namespaceSelector: strange }, {}, { ipBlock: { cidr: "10.0.0.0/8" } }] },
      { from: [{ ipBlock: { cidr: "10.0.0.0/8", except: ["010.0.0.0/9"] } }] },
    ],
  });
  expect(policy.ingress).toEqual([{ peers: [{ cidr: "10.0.0.0/8", except: [] }] }, { peers: [] }] as never);
  expect(policy.problems).toEqual([
    `ingress[0].from[0]: ${PROBLEM}`,
    `ingress[0].from[1]: ${PROBLEM}`,
    "ingress[0].from[2]: it has no known selector",
    'ingress[1].from[0]: Cannot parse CIDR "010.0.0.0/9": wrong form',
  ]);
});

test("ports that nobody knows are none", () => {
  const ports = [
    { protocol: "QUIC", port: 1 },
    { protocol: "constructor" },
    { port: 9, endPort: 8 },
    { port: 70_000 },
    { port: 1.5 },
    { port: 80 },
  ];
  const policy = parse({ egress: [{ ports }], policyTypes: ["Egress"] });
  expect(policy.egress).toEqual([{ ports: [{ protocol: 6, first: 80, last: 80 }] }]);
  expect(policy.problems).toEqual([
    'egress[0].ports[0]: protocol "QUIC" is none of TCP, UDP, SCTP',
    'egress[0].ports[1]: protocol "constructor" is none of TCP, UDP, SCTP',
    "egress[0].ports[2]: no ports are 9 to 8",
    "egress[0].ports[3]: no ports are 70000 to 70000",
    "egress[0].ports[4]: no ports are 1.5 to 1.5",
  ]);
});

test("a podSelector that nobody knows isolates what the rest of it selects, and its rules allow nothing", () => {
  const podSelector = { matchLabels: { app: "web" }, ...strange };
  const policy = parse({ podSelector, ingress: [{}], egress: [{}], policyTypes: ["Ingress", "Egress"] });
  expect(policy.selector.text).toBe("app=web");
  expect([policy.ingress, policy.egress]).toEqual([[], []]);
  expect(policy.problems).toEqual([`podSelector: ${PROBLEM}`]);
});
