import { readFileSync, writeFileSync } from "node:fs";
import { newDhcpNetwork, startDhcpDnsmasq, startLeaseServer } from "../../../testing/dhcp.ts";
import { attachMany, detachMany, leaseFiles, occurrences } from "./calls.ts";

/** Clock ticks per second of /proc/PID/stat, see sysconf(3). */
const TICKS_PER_SECOND = 100;

/** Renews leases that are due in one moment: those of a server that was away. */
export async function testBurst(containers: number): Promise<string> {
  using resources = new DisposableStack();
  const network = resources.use(newDhcpNetwork());
  await startDhcpDnsmasq(network.lan, network.directory, "--dhcp-range=10.7.0.10,10.7.0.250,255.255.255.0,10m");
  const first = await startLeaseServer(network.host, network.socket);
  const attached = await attachMany(network, resources, containers);
  await first.stop();
  const HALF_MS = 5.1 * 60_000;
  for (const path of leaseFiles(network.directory)) {
    const record = JSON.parse(readFileSync(path, "utf8"));
    // The clock began with the machine.
    if (record.requestedAt < HALF_MS) {
      throw new Error("Leases cannot be due on a machine that is up for less than 6 minutes");
    }
    writeFileSync(path, JSON.stringify({ ...record, requestedAt: record.requestedAt - HALF_MS }));
  }
  const next = await startLeaseServer(network.host, network.socket);
  const startedAt = performance.now();
  const renewed = () => occurrences(next.log(), " is renewed for ");
  while (renewed() < containers) {
    if (performance.now() > startedAt + 60_000) throw new Error(`${renewed()} of ${containers} are renewed`);
    await Bun.sleep(5);
  }
  const milliseconds = Math.round(performance.now() - startedAt);
  const cpu = cpuSeconds(next.process.pid).toFixed(2);
  await detachMany(network, attached);
  return `${containers} leases that were due at once were renewed in ${milliseconds} ms; start and renewals took ${cpu} s of CPU time`;
}

function cpuSeconds(pid: number): number {
  const [, fields = ""] = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ");
  const [user, system] = fields.split(" ").slice(11, 13).map(Number) as [number, number];
  return (user + system) / TICKS_PER_SECOND;
}
