import { expect, test } from "bun:test";
import { type Ip, parseIp } from "../ffi/address.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { bootTimeMs } from "../ffi/sys/boot_clock.ts";
import { newNetns, runShellInNetns } from "../testing/netns.ts";
import { listTrackedFlows, trackFlows } from "../testing/tracked_flows.ts";
import { FormerFlows } from "./former_flows.ts";
import { FreeAddresses } from "./free_addresses.ts";

/** More than procfs is read for. */
const FLOWS = 400;
const [A, B, C, D, OTHER, V6] = ["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4", "10.2.0.1", "fd01::2"].map(
  parseIp,
) as [
  Ip,
  Ip,
  Ip,
  Ip,
  Ip,
  Ip,
];

/** As the part `cluster` leaves a node whose pods have routes of their own. */
function newNode(): Netns {
  const host = newNetns();
  runShellInNetns(
    host,
    "ip link set lo up; ip addr add 10.1.0.0/32 dev lo; ip addr add fd01::/128 dev lo",
    "ip route add unreachable 10.1.0.0/24",
    "ip route add unreachable fd01::/64",
  );
  return host;
}

const newAddresses = (host: Netns, pauses = { attached: 1000, released: 0 }, log: string[] = []) =>
  new FreeAddresses(host, { log: (message) => void log.push(message), pauses });

const sourcesOf = (host: Netns) => [...new Set(listTrackedFlows(host).map(({ source }) => source))].sort();

test("addresses are free that had no flows, and nobody since", async () => {
  using host = newNode();
  trackFlows(host, [A], FLOWS);
  using addresses = newAddresses(host);
  expect(addresses.attach([C])).toBe(false);
  await addresses.list();
  expect(addresses.attach([A])).toBe(false);
  expect(addresses.attach([C])).toBe(false);
  addresses.use([D]);
  expect(addresses.attach([D])).toBe(false);
  expect(addresses.attach([B, V6])).toBe(true);
  // Now they had somebody.
  expect(addresses.attach([B])).toBe(false);
  expect(addresses.attach([V6])).toBe(false);
});

test("one of a pod's two addresses is too little", async () => {
  using host = newNode();
  using addresses = newAddresses(host);
  await addresses.list();
  addresses.use([A]);
  expect(addresses.attach([A, V6])).toBe(false);
});

test("an address is not free where a packet to it begins a flow", async () => {
  using host = newNode();
  using addresses = newAddresses(host);
  await addresses.list();
  expect(addresses.attach([OTHER])).toBe(false);
  runShellInNetns(
    host,
    "ip link add pods0 type bridge; ip link set pods0 up",
    "ip route del unreachable 10.1.0.0/24",
    "ip addr add 10.1.0.254/24 dev pods0",
    "ip route add unreachable 10.1.0.0/24 metric 1000",
  );
  expect(addresses.attach([A])).toBe(false);
  runShellInNetns(host, "ip link del pods0");
  expect(addresses.attach([B])).toBe(true);
});

test("pods that attached without a question make their addresses used", async () => {
  using host = newNode();
  using addresses = newAddresses(host, { attached: 50, released: 0 });
  await addresses.list();
  addresses.noteAttached([A, B, C]);
  // Its ADD asks a moment later.
  expect(addresses.attach([A])).toBe(true);
  await Bun.sleep(60);
  addresses.noteAttached([A, B]);
  expect([B, C].map((ip) => addresses.attach([ip]))).toEqual([false, true]);
});

test("a walk frees what pods had that have ended, and deletes nothing there", async () => {
  using host = newNode();
  using addresses = newAddresses(host);
  const log: string[] = [];
  using former = new FormerFlows(host, addresses, (message) => void log.push(message));
  const walk = (ip: Ip) => former.delete([ip], bootTimeMs() + 60_000);
  await addresses.list();
  const released = [A, B, C];
  expect(addresses.attach(released)).toBe(true);
  addresses.detach(released);
  // A next pod with an address of a network without policies, and a link that a failed DEL has left.
  trackFlows(host, [B], FLOWS);
  runShellInNetns(host, "ip route add 10.1.0.3/32 dev lo");
  expect(await walk(D)).toBe(true);
  expect(sourcesOf(host)).toEqual([B]);
  runShellInNetns(host, "ip route del 10.1.0.3/32 dev lo");
  expect([addresses.attach([A]), addresses.attach([B]), addresses.attach([C])]).toEqual([true, false, false]);
  addresses.detach([B, C]);
  for (const ip of [B, D]) expect(await walk(ip)).toBe(true);
  expect([addresses.attach([B]), addresses.attach([C])]).toEqual([true, true]);
  expect(log).toEqual([]);
});

test("who has an address again meanwhile keeps it used", async () => {
  using host = newNode();
  using addresses = newAddresses(host);
  await addresses.list();
  addresses.detach([A, B]);
  await Bun.sleep(2);
  const released = addresses.released(16);
  expect([...released.keys()]).toEqual([A, B]);
  addresses.attach([A]);
  addresses.detach([B]);
  addresses.settle(released, new Set(released.keys()));
  expect([addresses.attach([A]), addresses.attach([B])]).toEqual([false, false]);
});

test("flows are listed once packets to addresses without a pod are refused", async () => {
  using host = newNetns();
  using addresses = newAddresses(host);
  await addresses.list();
  runShellInNetns(host, "ip link set lo up; ip route add unreachable 10.1.0.0/24");
  expect(addresses.attach([A])).toBe(false);
  await addresses.list();
  expect([addresses.attach([B]), addresses.attach([V6])]).toEqual([true, false]);
});

test("addresses that somebody still has do not keep others from being freed", async () => {
  using host = newNode();
  using addresses = newAddresses(host);
  await addresses.list();
  addresses.detach([A, B, C]);
  await Bun.sleep(2);
  runShellInNetns(host, "ip route add 10.1.0.1/32 dev lo");
  expect([...addresses.released(2).keys()]).toEqual([B]);
  addresses.settle(addresses.released(1), new Set());
  await Bun.sleep(2);
  expect([...addresses.released(1).keys()]).toEqual([C]);
});
