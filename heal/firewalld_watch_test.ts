/** A bus of the test's own, with a program that has firewalld's name there. */
import { expect } from "bun:test";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pollAny } from "../ffi/sys/poll.ts";
import { testWith } from "../testing/binary.ts";
import { FIREWALLD_PROGRAMS, startBus, type TestBus } from "../testing/firewalld.ts";
import { FirewalldWatch } from "./firewalld_watch.ts";

/** Sends the signal of each line; takes the name first if told. The module comes with firewalld. */
const SERVICE = `
import sys, dbus.bus, dbus.lowlevel
name = "org.fedoraproject.FirewallD1"
bus = dbus.bus.BusConnection(sys.argv[1])
if sys.argv[2] == "own": bus.request_name(name)
print("ready", flush=True)
for line in sys.stdin:
  bus.send_message(dbus.lowlevel.SignalMessage("/org/fedoraproject/FirewallD1", name, line.strip()))
  bus.flush()
`;

type Service = Disposable & { send(signal: string): void };

async function startService(bus: TestBus, role: "own" | "none"): Promise<Service> {
  const argv = ["/usr/bin/python3", "-c", SERVICE, bus.address, role];
  const child = Bun.spawn(argv, { stdin: "pipe", stdout: "pipe" });
  await child.stdout.getReader().read();
  return {
    send(signal) {
      child.stdin.write(`${signal}\n`);
      child.stdin.flush();
    },
    [Symbol.dispose]: () => child.kill("SIGKILL"),
  };
}

/** Waits for what the watch hears next. */
function hear(watch: FirewalldWatch): string[] {
  for (;;) {
    const timeoutMs = Math.max(0, watch.nextRetry - performance.now());
    pollAny(watch.fds, timeoutMs === Infinity ? -1 : Math.ceil(timeoutMs));
    const causes = watch.read();
    if (causes.length > 0) return causes;
  }
}

testWith(FIREWALLD_PROGRAMS, "firewalld is heard when it starts and reloads, and nobody in its name", async () => {
  using bus = await startBus();
  using watch = new FirewalldWatch(bus.address);
  expect(watch.fds).toHaveLength(1);
  using stranger = await startService(bus, "none");
  stranger.send("Reloaded");
  using firewalld = await startService(bus, "own");
  expect(hear(watch)).toEqual(["a start of firewalld"]);
  stranger.send("Reloaded");
  firewalld.send("Other");
  firewalld.send("Reloaded");
  expect(hear(watch)).toEqual(["a reload of firewalld"]);
  expect(watch.nextRetry).toBe(Infinity);
});

testWith(FIREWALLD_PROGRAMS, "a bus that goes is left quietly, and looked for again a few times", async () => {
  const bus = await startBus();
  using watch = new FirewalldWatch(bus.address);
  bus[Symbol.dispose]();
  pollAny(watch.fds);
  expect([watch.read(), watch.fds]).toEqual([[], []]);
  expect(watch.nextRetry).toBeLessThan(Infinity);
});

testWith(FIREWALLD_PROGRAMS, "a bus that comes later is found after a change of the ruleset", async () => {
  const directory = mkdtempSync(join(tmpdir(), "cni-bus-"));
  using watch = new FirewalldWatch(`unix:path=${directory}/bus`);
  expect([watch.read(), watch.fds, watch.nextRetry]).toEqual([[], [], Infinity]);
  using bus = await startBus(directory);
  using _firewalld = await startService(bus, "own");
  watch.connect();
  expect(hear(watch)).toEqual(["a time without D-Bus"]);
  expect([watch.fds.length, watch.nextRetry]).toEqual([1, Infinity]);
});
