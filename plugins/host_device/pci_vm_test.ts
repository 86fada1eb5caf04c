/**
 * Real network cards, which the virtual machine has two of, on one wire. The kernel puts them back onto the host when a namespace dies.
 *
 * The cards are in the namespace of the machine, which is the only one that sysfs tells of.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { runPlugin } from "../../testing/binary.ts";
import { parseCidr } from "../../ffi/address.ts";
import { createNetns, currentNetns, type Netns } from "../../ffi/netns/netns.ts";
import { runInNetns, until } from "../../testing/netns.ts";
import hostDevice from "./plugin.ts";
import { plugin } from "../lib/protocol/plugin.ts";
import { errorOfCall, invokePlugin, newHostContext, newRequest } from "../../testing/plugin_call.ts";
import type { CniCommand } from "../../spec/version.ts";
import { anything } from "../../spec/schema.ts";

const fixed = plugin({
  name: "fixed",
  about: "Gives the address of its test",
  config: anything,
  add: () => ({ ips: [{ address: parseCidr("10.7.0.9/24") }] }),
  del() {},
  check() {},
});

// scripts/src/vm/main.ts
const OTHER = "0000:00:04.0";
const CARD = "0000:00:05.0";
const OTHER_MAC = "52:54:00:00:00:04";
const MAC = "52:54:00:00:00:05";

const dataDir = mkdtempSync(join(tmpdir(), "cni-test-"));
const host = currentNetns();
let NAME: string;

beforeAll(() => {
  for (const module of ["virtio_net", "virtio_pci"]) Bun.spawnSync(["modprobe", module]);
  const [other] = nameOf(OTHER_MAC), [card] = nameOf(MAC);
  // On any other machine these would be interfaces that somebody needs.
  if (!other || !card) throw new Error("These tests are for the virtual machine: scripts/vm");
  NAME = card;
  runInNetns(host, "ip", "addr", "add", "10.7.0.1/24", "dev", other);
  runInNetns(host, "ip", "link", "set", other, "up");
});
afterAll(() => {
  rmSync(dataDir, { recursive: true });
  host[Symbol.dispose]();
});

// deno-lint-ignore no-explicit-any -- what ip(8) prints
const shown = (netns: Netns, ...words: string[]): any[] => JSON.parse(runInNetns(netns, "ip", "-j", "-d", ...words));
const nameOf = (mac: string): string[] =>
  shown(host, "link", "show").filter(({ address }) => address === mac).map(({ ifname }) => ifname);
const cardOn = (netns: Netns, name: string) => shown(netns, "link", "show", name)[0];

const context = newHostContext({ host, findPlugin: (type) => type === "fixed" ? fixed : undefined });

function ask(
  verb: CniCommand,
  netns: Netns | string,
  config: object,
  ifname = "net1",
  containerId = "c1",
  hostContext = context,
  // deno-lint-ignore no-explicit-any -- what a plugin prints
): any {
  const request = newRequest("host-device", verb, { dataDir, ...config }, { containerId, ifname, netns });
  return invokePlugin(hostDevice, request, hostContext);
}

function expectHome(): void {
  const { address, flags, ifalias, mtu } = cardOn(host, NAME);
  expect([address, flags.includes("UP"), ifalias, mtu]).toEqual([MAC, true, undefined, 1500]);
  expect(readdirSync(dataDir)).toEqual([]);
}

function prepare(): void {
  runInNetns(host, "ip", "link", "set", NAME, "up");
  expectHome();
}

test("a card is found by its place, and sends and receives in the container", () => {
  // Each board has its PCI bus elsewhere below /sys/devices.
  const place = realpathSync(`/sys/bus/pci/devices/${CARD}`);
  const ways: [object, string?][] = [
    [{ pciBusID: CARD }, CARD],
    [{ runtimeConfig: { deviceID: CARD }, device: "lo" }, CARD],
    [{ kernelpath: place }],
    [{ kernelpath: `${place}/${readdirSync(place).find((name) => name.startsWith("virtio"))}` }],
    [{ hwaddr: MAC }],
    [{ device: NAME }],
  ];
  for (const [way, pciID] of ways) {
    prepare();
    using container = createNetns();
    const config = { ...way, ipam: { type: "fixed" } };
    const result = ask("ADD", container, config);
    expect(result.interfaces).toEqual([{ name: "net1", mac: MAC, sandbox: container.path, ...pciID && { pciID } }]);
    expect(nameOf(MAC)).toEqual([]);
    // Until it is answered: the wire is not there at once.
    runInNetns(container, "sh", "-c", "for _ in $(seq 50); do ping -c 1 -W 1 10.7.0.1 && exit; done; exit 1");
    const { details } = errorOfCall(() => ask("ADD", container, config, "net2", "c2"));
    expect(details).toBe("it may be in the namespace of a container");
    ask("CHECK", container, { ...config, prevResult: result });
    ask("DEL", container, config);
    expectHome();
  }
});

test("a card without a driver is refused, and DEL does not ask for one", () => {
  prepare();
  const driver = `/sys/bus/pci/devices/${OTHER}/driver`;
  writeFileSync(`${driver}/unbind`, OTHER);
  using container = createNetns();
  const { details } = errorOfCall(() => ask("ADD", container, { pciBusID: OTHER }));
  expect(details).toBe("no driver is bound to the device");
  ask("DEL", container, { pciBusID: OTHER });
  writeFileSync("/sys/bus/pci/drivers/virtio-pci/bind", OTHER);
});

/**
 * A container, which takes no part in this process: threads that the engine starts while this one is in a namespace hold it open for
 * seconds.
 */
async function newContainer() {
  const child = Bun.spawn(["unshare", "-n", "sh", "-c", "echo made; exec sleep 1000"], { stdout: "pipe" });
  await child.stdout.getReader().read();
  return {
    path: `/proc/${child.pid}/ns/net`,
    ip(line: string): void {
      runInNetns(host, "nsenter", "-n", "-t", `${child.pid}`, "ip", ...line.split(" "));
    },
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await child.exited;
    },
  };
}

/** Attaches the card to a container, from another process as well. */
function attach({ path }: { readonly path: string }, ifname: string): void {
  const env = { CNI_COMMAND: "ADD", CNI_CONTAINERID: "c1", CNI_IFNAME: ifname, CNI_NETNS: path };
  const document = { cniVersion: "1.1.0", name: "net", type: "host-device", dataDir, pciBusID: CARD };
  expect(runPlugin("host-device", { env, stdin: JSON.stringify(document) })).toMatchObject({ exitCode: 0 });
}

/** Attaches the card to a container that ends right after. */
async function addAndDie(ifname: string, change: readonly string[] = []): Promise<void> {
  await using container = await newContainer();
  attach(container, ifname);
  for (const line of change) container.ip(line);
}

test("DEL waits for the card that comes back from a dying namespace, and makes it what it was", async () => {
  const [taken] = nameOf(OTHER_MAC);
  const deaths: [string, string[]][] = [
    ["net1", []],
    // The name that it has in the container is taken on the host: the kernel makes one up.
    [taken!, []],
    [NAME, []],
    ["net1", ["link set net1 down", `link set net1 mtu 1400 address 0a:00:00:00:00:66 alias eth9`]],
  ];
  for (const [ifname, change] of deaths) {
    prepare();
    await addAndDie(ifname, change);
    ask("DEL", "/run/netns/gone", {}, ifname);
    expectHome();
    ask("DEL", "/run/netns/gone", {}, ifname);
    expectHome();
  }
});

test("DEL makes the card what it was, whichever of its looks finds that it has come back under its own name", async () => {
  for (let look = 1; look <= 3; look++) {
    prepare();
    await using container = await newContainer();
    attach(container, NAME);
    const path = join(dataDir, readdirSync(dataDir)[0]!);
    writeFileSync(path, readFileSync(path, "utf8").replace(container.path, "/run/netns/gone"));
    let sent = 0;
    const send = (request: Uint8Array) => {
      // As the kernel does when a namespace dies.
      if (++sent === look) container.ip(`link set ${NAME} netns 1`);
      host.route.send(request);
    };
    const watched: Netns = { ...host, route: { ...host.route, send } };
    ask("DEL", "/run/netns/gone", {}, NAME, "c1", { ...context, host: watched });
    expect(sent).toBeGreaterThanOrEqual(look);
    expectHome();
  }
});

/** Waits until the kernel has put the card back. */
async function awaitReturn(): Promise<void> {
  await until(() => nameOf(MAC).length > 0);
  expect(nameOf(MAC)).toEqual(["net1"]);
}

test("GC makes the card what it was, and so does the next ADD that asks for it", async () => {
  prepare();
  await addAndDie("net1");
  await awaitReturn();
  ask("GC", "", { "cni.dev/valid-attachments": [] });
  expectHome();

  await addAndDie("net1");
  await awaitReturn();
  using container = createNetns();
  ask("ADD", container, { device: NAME }, "net1", "c2");
  expect(cardOn(container, "net1").address).toBe(MAC);
  ask("DEL", "/run/netns/gone", {}, "net1", "c1");
  expect(cardOn(container, "net1").address).toBe(MAC);
  ask("DEL", container, { device: NAME }, "net1", "c2");
  expectHome();
});
