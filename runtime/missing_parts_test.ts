import { expect, test } from "bun:test";
import { openNetns } from "../ffi/netns/netns.ts";
import { parseResult } from "../spec/result.ts";
import { newNamespaces, runIp } from "../testing/netns.ts";
import { describeMissingParts, findMissingParts, linkFinder } from "./missing_parts.ts";

const MAC = "0a:58:00:00:00:02";

test.each([
  ["nothing", [], [], undefined],
  ["the interface of the container", ["link del eth0"], [], {
    links: ["veth0", "eth0"],
    addresses: [],
  }],
  ["one address of two", ["addr del 10.1.0.2/24 dev eth0"], [], { links: [], addresses: ["10.1.0.2/24"] }],
  ["an address whose prefix has changed", ["addr del fd00::2/64 dev eth0", "addr add fd00::2/120 dev eth0 nodad"], [], {
    links: [],
    addresses: ["fd00::2/64"],
  }],
  ["the bridge", [], ["link del br0"], { links: ["br0"], addresses: [] }],
  ["nothing where the container has renamed its interface", ["link set eth0 name net7"], [], undefined],
  [
    "nothing where an address was moved to another interface",
    ["addr del 10.1.0.2/24 dev eth0", "addr add 10.1.0.2/24 dev lo"],
    [],
    undefined,
  ],
])("findMissingParts() finds %s missing", (_, inContainer, onHost, expected) => {
  using namespaces = newNamespaces();
  const { host, container } = namespaces;
  runIp(
    host,
    "link add br0 type bridge",
    `link add veth0 type veth peer name eth0 address ${MAC} netns ${container.path}`,
  );
  runIp(container, "addr add 10.1.0.2/24 dev eth0", "addr add fd00::2/64 dev eth0 nodad");
  runIp(container, ...inContainer);
  runIp(host, ...onHost);
  const sandbox = container.path;
  const result = parseResult({
    cniVersion: "1.1.0",
    interfaces: [
      { name: "br0" },
      { name: "veth0" },
      { name: "eth0", mac: MAC.toUpperCase(), sandbox },
      { name: "socket0", sandbox, socketPath: "/run/vhost.sock" },
    ],
    ips: [
      { address: "10.1.0.2/24", interface: 2 },
      { address: "fd00::2/64", interface: 2 },
      { address: "10.2.0.2/24", interface: 3 },
      { address: "10.3.0.2/24" },
    ],
  }, "1.1.0");
  const missing = findMissingParts(result, sandbox, { openNetns }, linkFinder(host));
  expect(missing as unknown).toEqual(expected);
});

test("findMissingParts() says nothing of what it cannot know", () => {
  using namespaces = newNamespaces();
  const { host, container } = namespaces;
  const find = (result: object, path: string) =>
    findMissingParts(parseResult(result, "1.1.0"), path, { openNetns }, linkFinder(host));
  const eth0 = { cniVersion: "1.1.0", interfaces: [{ name: "eth0", sandbox: container.path }] };
  expect(find(eth0, container.path)).toEqual({ links: ["eth0"], addresses: [] });
  expect(find(eth0, "/nonexistent")).toBeUndefined();
  // As older versions, and plugins that report no interface.
  expect(find({ cniVersion: "0.2.0", ip4: { ip: "10.1.0.2/24" } }, container.path)).toBeUndefined();
  expect(find({ cniVersion: "1.1.0", interfaces: [{ name: "br0" }] }, container.path)).toBeUndefined();
});

test("describeMissingParts() names links and addresses", () => {
  const { address } = parseResult({ ips: [{ address: "10.1.0.2/24" }] }, "1.1.0").ips![0]!;
  expect(describeMissingParts({ links: ["br0", "eth0"], addresses: [address] })).toBe(
    'interface "br0" is missing, interface "eth0" is missing, address 10.1.0.2/24 is missing',
  );
});
