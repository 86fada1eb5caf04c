/** The body of `scripts/leases`. Each section has a network of its own, on which nothing may be left. @module */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createNetns, type Netns } from "../../../ffi/netns.ts";
import { ENGINE_ENV, fullProgramLink } from "../../../testing/binary.ts";
import {
  type DhcpNetwork,
  newDhcpNetwork,
  startDhcpDnsmasq,
  startKea,
  startLeaseServer,
  stopAll,
} from "../../../testing/dhcp.ts";
import { findShownLink, shownAddresses } from "../../../testing/fixture_configs.ts";
import { exitWithUsage, parseScriptOptions } from "../harness/options.ts";

const USAGE = `Usage: scripts/leases [SECTION…] [--containers N] [--from N] [--to N]
  many     N containers (100) get leases at once; the server of leases is killed and replaced; all are removed at once
  kills    the server of leases is killed at each system call, from --from (1) to --to (150), of an ADD and of a DEL
  minute   a lease of ten seconds is renewed for a minute`;

interface Answer {
  readonly exitCode: number;
  // deno-lint-ignore no-explicit-any -- what a plugin prints
  readonly document: any;
}

/** Calls the plugin bridge as a process. */
async function callBridge(
  { host, config }: DhcpNetwork,
  command: string,
  containerId: string,
  netns: Netns,
  prevResult?: object,
): Promise<Answer> {
  const child = host.run<Bun.Subprocess<"pipe" | Buffer, "pipe">>(() =>
    Bun.spawn([fullProgramLink("bridge")], {
      env: { ...ENGINE_ENV, CNI_COMMAND: command, CNI_CONTAINERID: containerId, CNI_NETNS: netns.path },
      stdin: Buffer.from(JSON.stringify({ cniVersion: "1.1.0", type: "bridge", ...config, prevResult })),
      stdout: "pipe",
      stderr: "ignore",
    })
  );
  const text = await new Response(child.stdout).text();
  return { exitCode: await child.exited, document: text === "" ? {} : JSON.parse(text) };
}

function requireSuccess(what: string, { exitCode, document }: Answer): void {
  if (exitCode !== 0) throw new Error(`${what} failed: ${JSON.stringify(document)}`);
}

/** What DHCP server and server of leases remember. */
const remembered = ({ directory }: DhcpNetwork): readonly string[] => [
  ...readFileSync(join(directory, "dnsmasq.leases"), "utf8").split("\n").filter((line) => line !== ""),
  ...readdirSync(join(directory, "dhcp")).filter((name) => name.endsWith(".json")),
];

async function requireNothingRemembered(network: DhcpNetwork, what: string): Promise<void> {
  // A release is on its way for a moment.
  for (const deadline = performance.now() + 5000; remembered(network).length > 0; await Bun.sleep(20)) {
    if (performance.now() > deadline) throw new Error(`${what}: left are ${remembered(network).join(", ")}`);
  }
}

async function testMany(containers: number): Promise<string> {
  using resources = new DisposableStack();
  const network = resources.use(newDhcpNetwork());
  await startDhcpDnsmasq(network.lan, network.directory, "--dhcp-range=10.7.0.10,10.7.0.250,255.255.255.0,2m");
  const server = await startLeaseServer(network.host, network.socket);
  const attachments = Array.from({ length: containers }, (_, i) => ({
    id: `c${i}`,
    netns: resources.use(createNetns()),
  }));
  const startedAt = performance.now();
  const added = await Promise.all(
    attachments.map(({ id, netns }) => callBridge(network, "ADD", id, netns)),
  );
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
  added.forEach((answer, i) => requireSuccess(`ADD of c${i}`, answer));
  const addresses = new Set(added.map(({ document }) => document.ips[0].address));
  if (addresses.size !== containers) throw new Error(`${containers} containers have ${addresses.size} addresses`);
  await server.stop("SIGKILL");
  await startLeaseServer(network.host, network.socket);
  for (const command of ["CHECK", "DEL"]) {
    const answers = await Promise.all(
      attachments.map(({ id, netns }, i) => callBridge(network, command, id, netns, added[i]!.document)),
    );
    answers.forEach((answer, i) => requireSuccess(`${command} of c${i}`, answer));
  }
  await requireNothingRemembered(network, "after all DELs");
  return `${containers} containers got leases in ${seconds} s, kept them after a kill, and released them`;
}

/** Kills the server of leases at its `call`-th system call during a command, and starts the next one. */
async function killDuring(
  network: DhcpNetwork,
  call: number,
  command: () => Promise<Answer>,
): Promise<Answer> {
  const server = await startLeaseServer(network.host, network.socket);
  const injection = ["-e", "trace=all", "-e", `inject=all:signal=KILL:when=${call}`];
  const strace = Bun.spawn(["strace", "-q", "-o", "/dev/null", ...injection, "-p", String(server.process.pid)], {
    stdio: ["ignore", "ignore", "ignore"],
  });
  const status = `/proc/${server.process.pid}/status`;
  // The first calls come as strace begins.
  const isTraced = () => !existsSync(status) || !/^TracerPid:\t0$/m.test(readFileSync(status, "utf8"));
  while (!isTraced()) await Bun.sleep(2);
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
    if (added.exitCode !== 0 && added.document.code !== 11) requireSuccess(`ADD killed at call ${call}`, added);
    const deleted = await killDuring(network, call, () => callBridge(network, "DEL", "c1", netns, added.document));
    requireSuccess(`DEL killed at call ${call}`, deleted);
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
  requireSuccess("ADD", await callBridge(network, "ADD", "c1", netns));
  const [address] = shownAddresses(findShownLink(netns));
  for (let second = 0; second < 60; second++) {
    await Bun.sleep(1000);
    const [current] = shownAddresses(findShownLink(netns));
    if (current !== address) throw new Error(`After ${second} s the address is ${current}: ${server.log()}`);
  }
  const renewals = server.log().split("is renewed").length - 1;
  if (renewals < 10) throw new Error(`There were ${renewals} renewals in a minute: ${server.log()}`);
  return "a lease of 10 s was renewed for a minute, and the address never left the interface";
}

const { words, count } = parseScriptOptions(USAGE);
const SECTIONS: Readonly<Record<string, () => Promise<string>>> = {
  many: () => testMany(count("containers", 100)),
  kills: () => testKills(count("from", 1), count("to", 150)),
  minute: testMinute,
};
const unknown = words.find((word) => !Object.hasOwn(SECTIONS, word));
if (unknown !== undefined) exitWithUsage(`there is no section ${JSON.stringify(unknown)}`, USAGE);
try {
  for (const [name, run] of Object.entries(SECTIONS)) {
    if (words.length === 0 || words.includes(name)) console.log(`${name}: ${await run()}`);
  }
} catch (error) {
  console.error((error as Error).message);
  process.exitCode = 1;
} finally {
  stopAll();
}
