import { expect, test } from "bun:test";
import { parseCidr, parseIp } from "../ffi/address.ts";
import { hasTextsOf, isSameNode, type NodeObject, parseNode } from "./node.ts";

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
