/** The body of `scripts/leases`. Each section has a network of its own, on which nothing may be left. @module */
import { existsSync, readFileSync } from "node:fs";
import { createNetns } from "../../../ffi/netns/netns.ts";
import {
  type DhcpNetwork,
  newDhcpNetwork,
  startDhcpDnsmasq,
  startKea,
  startLeaseServer,
  stopAll,
} from "../../../testing/dhcp.ts";
import { findShownLink, shownAddresses } from "../../../testing/fixture_configs.ts";
import { until } from "../../../testing/netns.ts";
import { runCampaign, tryStep } from "../harness/campaign.ts";
import { chooseParts, parseScriptOptions } from "../harness/options.ts";
import { testBurst } from "./burst.ts";
import {
  attachMany,
  type BridgeAnswer,
  callBridge,
  detachMany,
  occurrences,
  requireBridgeSuccess,
  requireNothingRemembered,
} from "./calls.ts";
import { testOutage } from "./outage.ts";
import { testStopped } from "./stopped.ts";
import { testUpgrade } from "./upgrade.ts";

const USAGE = `Usage: scripts/leases [SECTION…] [--containers N] [--from N] [--to N] [--seconds N]
  many     N containers (100) get leases at once; the server of leases is killed and replaced; all are removed at once
  kills    the server of leases is killed at each system call, from --from (1) to --to (150), of an ADD and of a DEL
  minute   a lease of ten seconds is renewed for a minute
  upgrade  cni serve is replaced by another build and killed, while N containers (50) have leases
  outage   the DHCP server of N containers (20) is away for --seconds (300), and forgets them
  burst    N leases (200) are due at once
  stopped  ADD and DEL at a server of leases that hangs`;

async function testMany(containers: number): Promise<string> {
  using resources = new DisposableStack();
  const network = resources.use(newDhcpNetwork());
  await startDhcpDnsmasq(network.lan, network.directory, "--dhcp-range=10.7.0.10,10.7.0.250,255.255.255.0,2m");
  const server = await startLeaseServer(network.host, network.socket);
  const startedAt = performance.now();
  const attached = await attachMany(network, resources, containers);
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
  await server.stop("SIGKILL");
  await startLeaseServer(network.host, network.socket);
  await detachMany(network, attached);
  return `${containers} containers got leases in ${seconds} s, kept them after a kill, and released them`;
}

/** Kills the server of leases at its `call`-th system call during a command, and starts the next one. */
async function killDuring(
  network: DhcpNetwork,
  call: number,
  command: () => Promise<BridgeAnswer>,
): Promise<BridgeAnswer> {
  const server = await startLeaseServer(network.host, network.socket);
  const injection = ["-e", "trace=all", "-e", `inject=all:signal=KILL:when=${call}`];
  const strace = Bun.spawn(["strace", "-q", "-o", "/dev/null", ...injection, "-p", String(server.process.pid)], {
    stdio: ["ignore", "ignore", "ignore"],
  });
  const status = `/proc/${server.process.pid}/status`;
  // The first calls come as strace begins.
  await until(() => !existsSync(status) || !/^TracerPid:\t0$/m.test(readFileSync(status, "utf8")));
  const answer = command();
  const first = await Promise.race([server.process.exited.then(() => "killed"), answer.then(() => "answered")]);
  if (first === "answered") await server.stop("SIGKILL");
  const next = await startLeaseServer(network.host, network.socket);
  const result = await answer;
  strace.kill("SIGKILL");
  await strace.exited;
  await next.stop();
  return result;
}

async function testKills(from: number, to: number): Promise<string> {
  using network = newDhcpNetwork();
  await startDhcpDnsmasq(network.lan, network.directory);
  for (let call = from; call <= to; call++) {
    using netns = createNetns();
    const added = await killDuring(network, call, () => callBridge(network, "ADD", "c1", netns));
    // An engine repeats what may succeed later.
    if (added.exitCode !== 0 && added.document.code !== 11) requireBridgeSuccess(`ADD killed at call ${call}`, added);
    const deleted = await killDuring(network, call, () => callBridge(network, "DEL", "c1", netns, added.document));
    requireBridgeSuccess(`DEL killed at call ${call}`, deleted);
    const last = await startLeaseServer(network.host, network.socket);
    await requireNothingRemembered(network, `killed at call ${call}`);
    await last.stop();
  }
  return `the server of leases was killed at system calls ${from} to ${to} of ADD and DEL: nothing was left`;
}

async function testMinute(): Promise<string> {
  using network = newDhcpNetwork();
  using netns = createNetns();
  await startKea(network.lan, network.directory, { prefix: "10.7.0", renew: 5, rebind: 8, lifetime: 10 });
  const server = await startLeaseServer(network.host, network.socket);
  requireBridgeSuccess("ADD", await callBridge(network, "ADD", "c1", netns));
  const [address] = shownAddresses(findShownLink(netns));
  for (let second = 0; second < 60; second++) {
    await Bun.sleep(1000);
    const [current] = shownAddresses(findShownLink(netns));
    if (current !== address) throw new Error(`After ${second} s the address is ${current}: ${server.log()}`);
  }
  const renewals = occurrences(server.log(), "is renewed");
  if (renewals < 10) throw new Error(`There were ${renewals} renewals in a minute: ${server.log()}`);
  return "a lease of 10 s was renewed for a minute, and the address never left the interface";
}

const options = parseScriptOptions(USAGE);
const { count } = options;
const SECTIONS: Readonly<Record<string, () => Promise<string>>> = {
  many: () => testMany(count("containers", 100)),
  kills: () => testKills(count("from", 1), count("to", 150)),
  minute: testMinute,
  upgrade: () => testUpgrade(count("containers", 50)),
  outage: () => testOutage(count("containers", 20), count("seconds", 300)),
  burst: () => testBurst(count("containers", 200)),
  stopped: testStopped,
};
await runCampaign({
  options,
  parts: chooseParts(Object.keys(SECTIONS), options),
  work: (name) => tryStep(name, SECTIONS[name]!),
});
// For a part that has failed, too.
stopAll();
