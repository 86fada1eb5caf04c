import { newDhcpNetwork, startKea, startLeaseServer } from "../../../testing/dhcp.ts";
import { attachMany, detachMany, hasLeasedAddress } from "./calls.ts";

/** Leases end in a third of an outage of this length. */
export async function testOutage(containers: number, seconds: number): Promise<string> {
  using resources = new DisposableStack();
  const network = resources.use(newDhcpNetwork());
  const renew = Math.max(1, Math.floor(seconds / 12));
  const times = { prefix: "10.7.0", renew, rebind: renew * 2, lifetime: renew * 4 };
  const kea = await startKea(network.lan, network.directory, times);
  const server = await startLeaseServer(network.host, network.socket);
  const attached = await attachMany(network, resources, containers);
  await kea.stop("SIGKILL");
  await Bun.sleep(seconds * 1000);
  const kept = attached.filter(hasLeasedAddress);
  if (kept.length > 0) throw new Error(`${kept.length} containers have addresses that are not theirs any more`);
  // It has forgotten all leases.
  await startKea(network.lan, network.directory, times);
  const startedAt = performance.now();
  while (!attached.every(hasLeasedAddress)) {
    if (performance.now() > startedAt + 120_000) throw new Error(`Addresses do not come back: ${server.log()}`);
    await Bun.sleep(100);
  }
  const back = ((performance.now() - startedAt) / 1000).toFixed(1);
  await detachMany(network, attached);
  return `after ${seconds} s without a DHCP server, ${containers} containers had their addresses back in ${back} s`;
}
