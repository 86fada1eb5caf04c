import { appendFileSync, copyFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { newDhcpNetwork, startKea } from "../../../testing/dhcp.ts";
import { newServerSite, type ServerProcess, type ServerStart } from "../../../testing/server_site.ts";
import { type Attached, attachMany, detachMany, occurrences, requireLeasedAddresses } from "./calls.ts";

/** Replaces `cni serve` by another build and back, and kills it, while leases are renewed every second. */
export async function testUpgrade(containers: number): Promise<string> {
  await using site = newServerSite();
  using resources = new DisposableStack();
  const lan = resources.use(newDhcpNetwork());
  const kea = await startKea(lan.lan, lan.directory, { prefix: "10.7.0", renew: 1, rebind: 20, lifetime: 30 });
  const directory = dirname(site.socket);
  const ipam = { type: "dhcp", daemonSocketPath: join(directory, "dhcp.sock") };
  const network = { ...lan, directory, config: { ...lan.config, ipam } };
  const start = (options?: ServerStart) => lan.host.run(() => ({ server: site.start(options) })).server;
  await start().untilReady();
  const attached = await attachMany(network, resources, containers);
  const offers = () => occurrences(kea.log(), "DHCP4_LEASE_OFFER");
  const offersBefore = offers();
  const [thisBuild, otherBuild] = [join(site.bin, "cni-full"), join(site.directory, "other")];
  copyFileSync(thisBuild, otherBuild);
  appendFileSync(otherBuild, "another build");
  for (const program of [otherBuild, thisBuild]) {
    const server = start({ program, options: ["--replace"] });
    await untilRenewed(server, attached);
    if (program === thisBuild) server.process.kill("SIGKILL");
  }
  await untilRenewed(start(), attached);
  if (offers() !== offersBefore) throw new Error(`${offers() - offersBefore} addresses were asked for anew`);
  await detachMany(network, attached);
  return `${containers} leases outlived two upgrades and a kill, and were renewed after each`;
}

/** Waits until the server has renewed each lease twice. The containers have their addresses all the time. */
async function untilRenewed(server: ServerProcess, attached: readonly Attached[]): Promise<void> {
  const deadline = performance.now() + 60_000;
  for (;;) {
    requireLeasedAddresses(attached, "after an upgrade");
    const lines = server.log().split("\n").filter((line) => line.includes(" is renewed for "));
    const missing = attached.filter(({ id }) => lines.filter((line) => line.includes(`${id}/lan/eth0: `)).length < 2);
    if (missing.length === 0) return;
    if (performance.now() > deadline) {
      throw new Error(`Not renewed: ${missing.map(({ id }) => id).join(", ")}\n${server.log()}`);
    }
    await Bun.sleep(100);
  }
}
