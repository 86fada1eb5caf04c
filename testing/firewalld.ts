/**
 * A firewalld and a bus of their own, as on a machine of its own: nothing of them is the running machine's.
 *
 * @module
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import { runShellInNetns } from "./netns.ts";

/** Programs that {@linkcode startFirewalld} runs. */
export const FIREWALLD_PROGRAMS = ["firewalld", "dbus-daemon"] as const;

/** A bus like the system's. */
export interface TestBus extends Disposable {
  /** What DBUS_SYSTEM_BUS_ADDRESS has to be. */
  readonly address: string;
  readonly pid: number;
}

/** Starts a bus, which listens when this returns. @param directory for its socket, `bus`; removed with it */
export async function startBus(directory: string = mkdtempSync(join(tmpdir(), "cni-bus-"))): Promise<TestBus> {
  const address = `unix:path=${directory}/bus`;
  const daemon = Bun.spawn([
    "dbus-daemon",
    "--system",
    "--nofork",
    "--nopidfile",
    `--address=${address}`,
    "--print-address",
  ], {
    stderr: "ignore",
  });
  // It says where it listens once it does.
  await daemon.stdout.getReader().read();
  return {
    address,
    pid: daemon.pid,
    [Symbol.dispose]() {
      daemon.kill("SIGKILL");
      rmSync(directory, { recursive: true });
    },
  };
}

/** Runs firewall-cmd or another program that talks to a bus. @returns what it printed */
export function runOnBus(host: Netns, { address }: Pick<TestBus, "address">, command: string): string {
  return runShellInNetns(host, `export DBUS_SYSTEM_BUS_ADDRESS=${address}; ${command}`);
}

/** Starts firewalld as Debian configures it, with files of its own that nobody else sees. It has made its rules when this returns. */
export async function startFirewalld(host: Netns, bus: TestBus): Promise<Disposable> {
  const event = "type='signal',member='NameOwnerChanged',arg0='org.fedoraproject.FirewallD1'";
  const monitor = Bun.spawn(["dbus-monitor", "--address", bus.address, event], { stderr: "ignore" });
  const own = "mount -t tmpfs none /run; mkdir /run/firewalld; exec firewalld --nofork --nopid";
  const env = { ...process.env, DBUS_SYSTEM_BUS_ADDRESS: bus.address };
  const daemon = host.run(() =>
    Bun.spawn(["unshare", "-m", "sh", "-c", own], { env, stderr: "ignore", stdout: "ignore" })
  );
  // From then on it takes calls, and answers when it has made its rules.
  let seen = "";
  for await (const chunk of monitor.stdout) {
    seen += new TextDecoder().decode(chunk);
    if (seen.includes("org.fedoraproject.FirewallD1")) break;
  }
  monitor.kill("SIGKILL");
  runOnBus(host, bus, "firewall-cmd --state");
  return { [Symbol.dispose]: () => daemon.kill("SIGKILL") };
}

/** A program with firewalld's name that keeps zones' sources, and forgets them when it reloads: firewalld itself takes seconds for that. */
const STAND_IN = `
import sys, dbus, dbus.bus, dbus.service, dbus.mainloop.glib
from gi.repository import GLib
dbus.mainloop.glib.DBusGMainLoop(set_as_default=True)
NAME = "org.fedoraproject.FirewallD1"
sources = set()
class Firewalld(dbus.service.Object):
  @dbus.service.method(NAME + ".zone", in_signature="ss", out_signature="b")
  def querySource(self, zone, source): return (zone, source) in sources
  @dbus.service.method(NAME + ".zone", in_signature="ss", out_signature="s")
  def addSource(self, zone, source): sources.add((zone, source)); return zone
  @dbus.service.method(NAME, in_signature="", out_signature="")
  def reload(self): sources.clear(); self.Reloaded()
  @dbus.service.signal(NAME)
  def Reloaded(self): pass
bus = dbus.bus.BusConnection(sys.argv[1])
service = Firewalld(bus, "/org/fedoraproject/FirewallD1")
bus.request_name(NAME)
print("ready", flush=True)
GLib.MainLoop().run()
`;

/** A firewalld that makes no rules. Its modules come with the real one. */
export async function startFirewalldStandIn({ address }: TestBus): Promise<Disposable & { readonly pid: number }> {
  const child = Bun.spawn(["/usr/bin/python3", "-c", STAND_IN, address], { stdin: "ignore" });
  await child.stdout.getReader().read();
  return { pid: child.pid, [Symbol.dispose]: () => child.kill("SIGKILL") };
}

/** Calls a method of firewalld. @returns what dbus-send prints */
export function callFirewalld({ address }: TestBus, method: string, ...args: readonly string[]): string {
  const target = ["--print-reply=literal", "--dest=org.fedoraproject.FirewallD1", "/org/fedoraproject/FirewallD1"];
  const words = [`org.fedoraproject.FirewallD1.${method}`, ...args.map((arg) => `string:${arg}`)];
  const { stdout } = Bun.spawnSync(["dbus-send", `--bus=${address}`, ...target, ...words]);
  return stdout.toString().trim();
}
