/**
 * The plugin with a firewalld and a bus of its own, both in namespaces of the test's.
 *
 * @module
 */
import { expect, test } from "bun:test";
import {
  callFirewalld,
  FIREWALLD_PROGRAMS,
  runOnBus,
  startBus,
  startFirewalld,
  startFirewalldStandIn,
  type TestBus,
} from "../../testing/firewalld.ts";
import { testWith } from "../../testing/binary.ts";
import { parseIp } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { descriptor } from "../../ffi/sys/file.ts";
import { sys } from "../../ffi/sys/libc.ts";
import { AF_UNIX, SOCK_CLOEXEC, SOCK_STREAM } from "../../ffi/sys/uapi.ts";
import { NO_ANSWER_TIMEOUT_MS } from "../../testing/traffic.ts";
import firewall from "./plugin.ts";
import { type BridgeNetwork, bridgeNetworkTest, reachesOutside, serveOutside } from "../../testing/bridge_network.ts";
import { BUS_OBJECT, DbusError, findSystemBus } from "../../ffi/dbus/connection.ts";
import { findFirewalld } from "./firewalld.ts";
import { FirewalldWatch } from "../../heal/firewalld_watch.ts";
import { pollAny } from "../../ffi/sys/poll.ts";
import { runShellInNetns } from "../../testing/netns.ts";

const START_MS = 60_000;

/** A bus that the plugin takes for the system's. */
async function startSystemBus(): Promise<TestBus> {
  const bus = await startBus();
  const before = process.env.DBUS_SYSTEM_BUS_ADDRESS;
  process.env.DBUS_SYSTEM_BUS_ADDRESS = bus.address;
  return {
    ...bus,
    [Symbol.dispose]() {
      if (before === undefined) delete process.env.DBUS_SYSTEM_BUS_ADDRESS;
      else process.env.DBUS_SYSTEM_BUS_ADDRESS = before;
      bus[Symbol.dispose]();
    },
  };
}

/** Runs firewall-cmd on that bus. Programs that are started know the environment as it was when this one was. */
const firewallCmd = (host: Netns, args: string): string =>
  runOnBus(host, { address: process.env.DBUS_SYSTEM_BUS_ADDRESS! }, `firewall-cmd ${args}`);

const sources = (host: Netns, zone = "trusted"): string[] =>
  firewallCmd(host, `--zone=${zone} --list-sources`).split(/\s+/).filter((each) => each !== "")
    .sort();

function firewalldTest(name: string, body: (network: BridgeNetwork) => Promise<void>): void {
  if (FIREWALLD_PROGRAMS.every((program) => Bun.which(program))) {
    bridgeNetworkTest(name, async (network) => {
      using bus = await startSystemBus();
      using _firewalld = await startFirewalld(network.host, bus);
      await body(network);
    }, START_MS);
  } else testWith(FIREWALLD_PROGRAMS, name, () => {});
}

testWith(FIREWALLD_PROGRAMS, "a firewalld that hangs is waited for once", async () => {
  using bus = await startBus();
  using firewalld = await startFirewalldStandIn(bus);
  using zones = findFirewalld({ DBUS_SYSTEM_BUS_ADDRESS: bus.address }, 50)!;
  const address = parseIp("10.7.0.2");
  process.kill(firewalld.pid, "SIGSTOP");
  expect(() => zones.has("trusted", address)).toThrow(/ETIMEDOUT/);
  process.kill(firewalld.pid, "SIGCONT");
  expect(callFirewalld(bus, "zone.querySource", "trusted", "10.7.0.2/32")).toBe("boolean false");
  expect(() => zones.add("trusted", address)).toThrow(/ETIMEDOUT/);
});

firewalldTest("where firewalld runs it is told, and lets containers through until they leave", async (network) => {
  const { host, call } = network;
  using _outside = serveOutside(network);
  const [c1, c2] = [network.container(2), network.container(3)];
  expect(await reachesOutside(c1, NO_ANSWER_TIMEOUT_MS)).toEqual([false, false]);
  call(firewall, "ADD", {}, { container: c1 });
  call(firewall, "ADD", { backend: "firewalld" }, { container: c2, containerId: "c2" });
  expect(sources(host)).toEqual(["10.88.0.2/32", "10.88.0.3/32", "fd88::2/128", "fd88::3/128"]);
  expect([await reachesOutside(c1, NO_ANSWER_TIMEOUT_MS), await reachesOutside(c2, NO_ANSWER_TIMEOUT_MS)]).toEqual([[
    true,
    true,
  ], [true, true]]);
  call(firewall, "STATUS", { backend: "firewalld" });
  // What is there already is no reason to fail.
  call(firewall, "ADD", {}, { container: c1 });
  call(firewall, "CHECK", {}, { container: c1 });
  call(firewall, "DEL", {}, { container: c1 });
  expect(await reachesOutside(c1, NO_ANSWER_TIMEOUT_MS)).toEqual([false, false]);
  expect(() => call(firewall, "CHECK", { backend: "firewalld" }, { container: c1 })).toThrow(
    /calls to 10\.88\.0\.2 is missing/,
  );
  call(firewall, "DEL", {}, { container: c1 });
  // Nothing but the record says which addresses it had.
  call(firewall, "GC", { "cni.dev/valid-attachments": [] });
  expect(sources(host)).toEqual([]);
});

firewalldTest(
  "zones are as configured; a late DEL takes nothing from whoever has the address since",
  async (network) => {
    const { host, call } = network;
    const container = network.container(2);
    const zone = { firewalldZone: "internal" };
    call(firewall, "ADD", zone, { container, containerId: "late" });
    expect(sources(host, "internal")).toEqual(["10.88.0.2/32", "fd88::2/128"]);
    call(firewall, "ADD", zone, { container, containerId: "new" });
    call(firewall, "DEL", zone, { container, containerId: "late" });
    expect(sources(host, "internal")).toEqual(["10.88.0.2/32", "fd88::2/128"]);
    firewallCmd(host, "--zone=internal --remove-source=10.88.0.2/32");
    expect(() => call(firewall, "CHECK", zone, { container, containerId: "new" })).toThrow(
      'Check failed: firewalld does not have 10.88.0.2 in zone "internal"',
    );
    call(firewall, "DEL", zone, { container, containerId: "new" });
    expect(sources(host, "internal")).toEqual([]);
    const nowhere = () => call(firewall, "ADD", { firewalldZone: "nowhere" }, { container });
    expect(nowhere).toThrow(/INVALID_ZONE: nowhere/);
    expect(runShellInNetns(host, "nft list table inet cni")).not.toContain("elements");
    // A chain of another table that drops is another matter, and firewalld's own is its own.
    const before = runShellInNetns(host, "nft list table inet firewalld");
    for (const backend of ["nftables", "iptables"]) call(firewall, "ADD", { backend }, { container });
    expect(sources(host)).toEqual([]);
    expect(runShellInNetns(host, "nft list table inet firewalld")).toBe(before);
    await Promise.resolve();
  },
);

firewalldTest(
  "a firewalld that was told to load its settings anew is told of the containers again",
  async (network) => {
    const { host, call, restore } = network;
    using _outside = serveOutside(network);
    const container = network.container(2);
    call(firewall, "ADD", {}, { container });
    expect(await reachesOutside(container, NO_ANSWER_TIMEOUT_MS)).toEqual([true, true]);
    using watch = new FirewalldWatch(process.env.DBUS_SYSTEM_BUS_ADDRESS);
    firewallCmd(host, "--reload");
    pollAny(watch.fds);
    expect(watch.read()).toEqual(["a reload of firewalld"]);
    expect(await reachesOutside(container, NO_ANSWER_TIMEOUT_MS)).toEqual([false, false]);
    let error: unknown;
    try {
      call(firewall, "CHECK", {}, { container });
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toMatchObject({
      message: 'Check failed: firewalld does not have 10.88.0.2 in zone "trusted"',
      details: 'of container "c1" (network "web", interface "eth0"); put back what is missing: cni run restore web',
    });
    const inZone = ["10.88.0.2", "fd88::2"].map((address) => `${address} in zone "trusted" of firewalld`);
    // firewalld has emptied the tables of iptables as well.
    const accepted = ["ip", "ip6"].map((family) => `accept rules of chain "FORWARD" of table "${family} filter"`);
    expect(restore(firewall, {}, { container })).toEqual([...inZone, ...accepted]);
    expect(await reachesOutside(container, NO_ANSWER_TIMEOUT_MS)).toEqual([true, true]);
    call(firewall, "CHECK", {}, { container });
    expect(restore(firewall, {}, { container })).toEqual([]);
  },
);

testWith(["dbus-daemon"], "a bus without a firewalld is as good as none; errors of the bus are told", async () => {
  using _bus = await startSystemBus();
  expect(findFirewalld(process.env)).toBeUndefined();
  using bus = findSystemBus(process.env.DBUS_SYSTEM_BUS_ADDRESS)!;
  expect(bus.call({ ...BUS_OBJECT, member: "NameHasOwner", args: ["org.freedesktop.DBus"] })).toBe(true);
  expect(bus.call({ ...BUS_OBJECT, member: "GetNameOwner", args: ["org.freedesktop.DBus"] })).toBe(
    "org.freedesktop.DBus",
  );
  const id = bus.call({ ...BUS_OBJECT, member: "GetId", args: [] });
  expect(id).toMatch(/^[0-9a-f]{32}$/);
  let error: unknown;
  try {
    bus.call({ ...BUS_OBJECT, member: "GetNameOwner", args: ["no.body"] });
  } catch (thrown) {
    error = thrown;
  }
  expect(error).toBeInstanceOf(DbusError);
  expect(error).toMatchObject({ errorName: "org.freedesktop.DBus.Error.NameHasNoOwner" });
  // Long texts span several reads.
  const long = "x".repeat(50_000);
  expect(() => bus.call({ ...BUS_OBJECT, member: "GetNameOwner", args: [long] })).toThrow(long);
});

testWith(["dbus-daemon"], "a bus that does not answer is given up, one that is gone is none", async () => {
  const bus = await startSystemBus();
  process.kill(bus.pid, "SIGSTOP");
  let error: unknown;
  try {
    findSystemBus(bus.address, 100);
  } catch (thrown) {
    error = thrown;
  }
  expect(error).toBeInstanceOf(SystemError);
  expect(error).toMatchObject({ code: "ETIMEDOUT" });
  bus[Symbol.dispose]();
  expect(findSystemBus(bus.address)).toBeUndefined();
});

test("a bus that takes no more connections is given up", () => {
  const name = `cni-test-${process.pid}`;
  using socket = descriptor(sys.socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const address = Uint8Array.of(AF_UNIX, 0, 0, ...new TextEncoder().encode(name));
  sys.bind(socket.fd, address, address.length);
  // Nobody accepts: the first connection fills the queue, and whoever comes next waits to be let in.
  sys.syscall(SYS_listen, socket.fd, null, 0, 0);
  const codes: unknown[] = [];
  for (let i = 0; i < 2; i++) {
    try {
      findSystemBus(`unix:abstract=${name}`, 100);
    } catch (error) {
      codes.push((error as SystemError).code);
    }
  }
  expect(codes).toEqual(["ETIMEDOUT", "EAGAIN"]);
});

const SYS_listen = process.arch === "arm64" ? 201 : 50;

test("addresses of a bus are read as D-Bus writes them", () => {
  expect(findSystemBus("unix:path=/nonexistent,guid=1;tcp:host=localhost,port=1;unix:abstract=cni%20none"))
    .toBeUndefined();
  expect(findSystemBus("unix:path=/dev/null/bus")).toBeUndefined();
});
