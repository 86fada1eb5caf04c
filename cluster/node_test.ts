import { expect, test } from "bun:test";
import fc from "fast-check";
import { parseCidr, parseIp } from "../ffi/address.ts";
import { newNode } from "../testing/cluster_nodes.ts";
import { checkProperty } from "../testing/fuzz.ts";
import { hasTextsOf, isSameNode, type NodeObject, parseNode, trimNodeEvent } from "./node.ts";

const metadata = { uid: "u1", name: "a", creationTimestamp: "2026-01-02T03:04:05Z" };

test("a node has the first InternalIP of each family, whichever family is first, and its ranges", () => {
  const node = parseNode({
    metadata,
    spec: { podCIDR: "fd00:1::/64", podCIDRs: ["fd00:1::/64", "10.244.1.0/24"] },
    status: {
      addresses: [
        { type: "Hostname", address: "a" },
        { type: "ExternalIP", address: "203.0.113.1" },
        { type: "InternalIP", address: "2001:db8::1" },
        { type: "InternalIP", address: "192.0.2.1" },
        { type: "InternalIP", address: "192.0.2.9" },
      ],
    },
  });
  expect(node).toEqual({
    uid: "u1",
    name: "a",
    createdAtMs: Date.UTC(2026, 0, 2, 3, 4, 5),
    addresses: [parseIp("192.0.2.1"), parseIp("2001:db8::1")],
    podCidrs: [parseCidr("fd00:1::/64"), parseCidr("10.244.1.0/24")],
  });
});

test("what is no address is left out, and a range that is none is refused", () => {
  const addresses = ["node-a.example.org", "", "192.0.2.1"].map((address) => ({ type: "InternalIP", address }));
  expect(parseNode({ metadata, status: { addresses } }).addresses).toEqual([parseIp("192.0.2.1")]);
  expect(() => parseNode({ metadata, spec: { podCIDRs: ["10.244.1.0"] } })).toThrow("10.244.1.0");
});

test("a node that has just joined has neither addresses nor ranges; an old API server tells one range", () => {
  expect(parseNode({ metadata })).toMatchObject({ addresses: [], podCidrs: [] });
  expect(parseNode({ metadata, spec: { podCIDR: "10.244.1.0/24" } }).podCidrs).toEqual([parseCidr("10.244.1.0/24")]);
});

test("nodes are the same if what matters is", () => {
  const node = parseNode({ metadata, spec: { podCIDRs: ["10.244.1.0/24"] } });
  expect(isSameNode(node, { ...node, createdAtMs: 0 })).toBeTrue();
  expect(isSameNode(node, { ...node, uid: "u2" })).toBeFalse();
  expect(isSameNode(node, { ...node, podCidrs: [] })).toBeFalse();
  expect(isSameNode(node, { ...node, addresses: [parseIp("192.0.2.1")] })).toBeFalse();
});

test("what has the texts of a known node means it", () => {
  const object = (podCIDRs: readonly string[], ...addresses: readonly string[]): NodeObject => ({
    metadata,
    spec: { podCIDRs },
    status: {
      addresses: [{ type: "Hostname", address: "a" }, ...addresses.map((address) => ({ type: "InternalIP", address }))],
    },
  });
  const known = object(["10.244.1.0/24", "fd00:1::/64"], "192.0.2.1", "2001:db8::1");
  const node = parseNode(known);
  expect(hasTextsOf(known, node)).toBeTrue();
  expect(hasTextsOf({ metadata }, parseNode({ metadata }))).toBeTrue();
  for (
    const other of [
      object(["10.244.1.0/24"], "192.0.2.1", "2001:db8::1"),
      object(["10.244.1.0/24", "fd00:1::/64"], "2001:db8::1", "192.0.2.1"),
      object(["10.244.1.0/24", "fd00:1::/64"], "192.0.2.1,2001:db8::1"),
      object(["10.244.1.0/24", "fd00:1::/64"], "192.0.2.1", "2001:DB8::1"),
      { ...known, metadata: { ...metadata, uid: "u2" } },
      { ...known, metadata: { ...metadata, name: "b" } },
      { metadata },
    ]
  ) {
    expect(hasTextsOf(other, node)).toBeFalse();
  }
});

interface WrittenNode {
  readonly metadata?: object;
  readonly spec?: object | undefined;
  readonly status?: object | undefined;
}

/** As the API server writes it. */
function eventOf({ metadata: rest, ...object }: WrittenNode, type = "MODIFIED"): string {
  const { name, uid, creationTimestamp } = metadata;
  const written = { name, uid, resourceVersion: "12", creationTimestamp, ...rest };
  return JSON.stringify({ type, object: { kind: "Node", apiVersion: "v1", metadata: written, ...object } });
}

test("of an event, little is parsed", () => {
  const { spec, status, metadata: { labels, annotations, managedFields } = {} } = newNode(7);
  const line = eventOf({ metadata: { labels, annotations, managedFields }, spec, status });
  const trimmed = trimNodeEvent(line)!;
  expect([line.length > 10_000, trimmed.length < 500]).toEqual([true, true]);
  const { type, object } = JSON.parse(trimmed);
  expect([type, object.metadata.resourceVersion]).toEqual(["MODIFIED", "12"]);
  expect(parseNode(object)).toEqual(parseNode(JSON.parse(line).object));
});

test("of an event that is not as usual, all is parsed", () => {
  const [spec, status] = [{ podCIDRs: ["10.244.1.0/24"] }, {
    addresses: [{ type: "InternalIP", address: "192.0.2.1" }],
  }];
  expect(trimNodeEvent(eventOf({ spec, status }), "b")).toBeDefined();
  expect(trimNodeEvent(eventOf({ spec, status }), "a")).toBeUndefined();
  for (
    const line of [
      eventOf({ spec, status }, "DELETED"),
      eventOf({ spec, status }, "BOOKMARK"),
      eventOf({ spec }),
      eventOf({ status }),
      eventOf({ spec, status: { ...status, others: { addresses: [] } } }),
      eventOf({ metadata: { name: "a\\" }, spec, status }),
      eventOf({ metadata: { uid: undefined }, spec, status }),
      '{"type":"ERROR","object":{"kind":"Status","code":410}}',
    ]
  ) {
    expect(trimNodeEvent(line)).toBeUndefined();
  }
});

test("what is left of an event is JSON of the same node, or none, whatever its strings hold", () => {
  const piece = fc.constantFrom('"', "\\", "]", "}", "[", "{", ":", ",", "addresses", "podCIDRs", '"addresses":[', "a");
  const text = fc.array(piece, { maxLength: 6 }).map((pieces) => pieces.join(""));
  const texts = fc.dictionary(text, text, { maxKeys: 3 });
  const address = fc.record({ type: fc.constantFrom("InternalIP", "Hostname"), address: text });
  const node = fc.record({
    metadata: fc.record({ labels: texts, annotations: texts }),
    spec: fc.record({ podCIDRs: fc.constant(["10.244.1.0/24"]), providerID: text }),
    status: fc.record({ capacity: texts, addresses: fc.array(address, { maxLength: 3 }), images: fc.array(texts) }),
  });
  checkProperty(
    fc.property(node, (node) => {
      const line = eventOf(node);
      const trimmed = trimNodeEvent(line) ?? line;
      let parsed: { object: NodeObject };
      try {
        parsed = JSON.parse(trimmed);
      } catch {
        return;
      }
      expect(parsed.object.status).toMatchObject({ addresses: node.status.addresses });
      expect(parsed.object.spec).toMatchObject({ podCIDRs: node.spec.podCIDRs });
    }),
    300,
  );
});
