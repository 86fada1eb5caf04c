import { createNetns } from "../../../ffi/netns/netns.ts";
import { newDhcpNetwork, startDhcpDnsmasq, startLeaseServer } from "../../../testing/dhcp.ts";
import { attachMany, callBridge, requireBridgeSuccess, requireNothingRemembered } from "./calls.ts";

/** An ADD asks after 2 s whether the server works, and waits 2 s for the answer. */
const ADD_LIMIT_S = 8;
const DEL_LIMIT_S = 5;

/** Stops the server of leases without an end of its process. */
export async function testStopped(): Promise<string> {
  using resources = new DisposableStack();
  const network = resources.use(newDhcpNetwork());
  await startDhcpDnsmasq(network.lan, network.directory);
  const server = await startLeaseServer(network.host, network.socket);
  const [attached] = await attachMany(network, resources, 1);
  server.process.kill("SIGSTOP");
  const netns = resources.use(createNetns());
  const [added, addSeconds] = await timed(() => callBridge(network, "ADD", "late", netns));
  if (added.document.code !== 11) throw new Error(`ADD answers ${JSON.stringify(added.document)} instead of code 11`);
  const [deleted, delSeconds] = await timed(() => callBridge(network, "DEL", attached!.id, attached!.netns));
  requireBridgeSuccess("DEL", deleted);
  if (addSeconds > ADD_LIMIT_S || delSeconds > DEL_LIMIT_S) {
    throw new Error(`ADD took ${addSeconds} s, DEL ${delSeconds} s`);
  }
  server.process.kill("SIGCONT");
  await requireNothingRemembered(network, "once the server goes on");
  return `at a server that hangs, ADD failed after ${addSeconds} s, and DEL took ${delSeconds} s; nothing was left`;
}

async function timed<T>(call: () => Promise<T>): Promise<readonly [T, number]> {
  const startedAt = performance.now();
  return [await call(), Math.round((performance.now() - startedAt) / 100) / 10];
}
