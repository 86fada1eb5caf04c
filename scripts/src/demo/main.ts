/** The body of `scripts/demo`. Namespaces are open files of this process, so nothing stays behind. @module */
import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createNetns, type Netns } from "../../../ffi/netns/netns.ts";
import { listElements } from "../../../ffi/nft/objects.ts";
import { inetTable } from "../../../plugins/lib/ruleset/inet_table.ts";
import { linkNames, runIp } from "../../../testing/netns.ts";
import { connectOutside } from "../../../testing/outside.ts";
import { requestTcp, serveTcp } from "../../../testing/traffic.ts";
import { type ProcessCommand, runProcess, runSuccessfully } from "../harness/process.ts";
import { startShimServer } from "../harness/server.ts";
import { median } from "../harness/statistics.ts";
import { CNI_PROGRAM, newScratchDirectory, requireKept } from "../repository.ts";

using resources = new DisposableStack();
const state = resources.use(newScratchDirectory()).path;
const newNetns = () => resources.use(createNetns());
const namespaces = { host: newNetns(), web: newNetns(), client: newNetns(), outside: newNetns() };
const { host, web, client, outside } = namespaces;

const NETWORK = `{
  // JSON with comments: an administrator's file
  "cniVersion": "1.1.0",
  "name": "demo",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "demo0",
      "isDefaultGateway": true,
      "ipMasq": true,
      "hairpinMode": true, // so that a container reaches its own published port where bridged packets pass the rules
      "ipam": {
        "type": "host-local",
        "dataDir": "${state}/networks",
        "ranges": [[{ "subnet": "10.88.0.0/24" }], [{ "subnet": "fd00:88::/64" }]],
      },
    },
    { "type": "portmap", "capabilities": { "portMappings": true } },
  ],
}
`;
writeFileSync(join(state, "demo.conflist"), NETWORK);

const SPEED_ROUNDS = 20;
/** A file: gets the picture of `cni show`. */
const [PICTURE] = process.argv.slice(2);

let failures = 0;

function report(good: boolean, what: string, detail: string): void {
  if (!good) failures++;
  console.log(`  ${good ? "ok  " : "FAIL"}  ${what.padEnd(46)} ${detail}`);
}

function runCommand(program: string, verb: string, netns: string, id: string, ...options: string[]): ProcessCommand {
  const directories = [`--conf-dir=${state}`, `--cache-dir=${state}/cache`, `--plugin-dir=${state}/plugins`];
  return { argv: [program, "run", verb, "demo", netns, "--container-id", id, ...options, ...directories] };
}

function cni(verb: "add" | "del", container: "web" | "client", ...options: string[]): string {
  console.log(`cni run ${verb} demo ${[container, ...options].join(" ")}`);
  const command = runCommand(CNI_PROGRAM, verb, namespaces[container].path, container, ...options);
  const { exitCode, stdout, stderr } = host.run(() => runProcess(command));
  if (exitCode !== 0) throw new Error(`cni run ${verb} ${container} failed: ${stderr.trim()}`);
  return stdout;
}

async function checkTraffic(what: string, netns: Netns, hostname: string, port: number, expected: string) {
  const answer = await requestTcp(netns, hostname, port, 3000) ?? "no answer";
  report(answer.startsWith(expected), what, `${hostname} port ${port} → ${answer}`);
}

function ownedElements(): string[] {
  const maps = ["hostports", "hostip_hostports", "hairpin", "masquerade"].flatMap((name) => [`${name}4`, `${name}6`]);
  return maps.flatMap((map) =>
    listElements(host.nft, inetTable, map).map(({ comment }) => `${map.padEnd(14)} ${comment}`)
  );
}

function showNode(format: string): string {
  const words = ["show", `--format=${format}`, `--conf-dir=${state}`, `--cache-dir=${state}/cache`];
  return host.run(() => runSuccessfully({ argv: [CNI_PROGRAM, ...words] })).stdout;
}

function showNothingLeft(): void {
  console.log("\nWhat is left");
  const namesIn = (netns: Netns, ...kept: string[]) =>
    linkNames(netns).filter((name) => !["lo", ...kept].includes(name));
  const left = {
    "links on the host, but for the network's bridge": namesIn(host, "up0", "demo0"),
    "links in web": namesIn(web),
    "links in client": namesIn(client),
    "rules and map elements of a container": ownedElements(),
    "reserved addresses": readdirSync(join(state, "networks/demo")).filter((name) => /^[0-9a-f.:]+$/.test(name)),
    "cached results": readdirSync(join(state, "cache/results")),
  };
  for (const [what, names] of Object.entries(left)) report(names.length === 0, what, names.join(", ") || "none");
}

async function proveTraffic(four: string, six: string): Promise<void> {
  for (const [netns, name, port] of [[web, "web", 80], [host, "host", 9000], [outside, "outside", 9000]] as const) {
    resources.use(serveTcp(netns, name, port));
  }
  console.log("\nTraffic");
  const masqueraded = "container to outside, masqueraded";
  await checkTraffic("container to container, IPv4", client, four, 80, "web 10.88.0.");
  await checkTraffic("container to container, IPv6", client, six, 80, "web fd00:88::");
  await checkTraffic("container to host", client, "10.88.0.1", 9000, "host 10.88.0.");
  await checkTraffic(`${masqueraded}, IPv4`, client, "192.0.2.2", 9000, "outside 192.0.2.1");
  await checkTraffic(`${masqueraded}, IPv6`, client, "2001:db8::2", 9000, "outside 2001:db8::1");
  await checkTraffic("host to published port", host, "192.0.2.1", 8080, "web ");
  await checkTraffic("host to published port on 127.0.0.1", host, "127.0.0.1", 8080, "web ");
  await checkTraffic("outside to published port, IPv4", outside, "192.0.2.1", 8080, "web 192.0.2.2");
  await checkTraffic("outside to published port, IPv6", outside, "2001:db8::1", 8080, "web 2001:db8::2");
  await checkTraffic("container to its own published port", web, "192.0.2.1", 8080, "web ");
  await checkTraffic("container to its sibling's published port", client, "192.0.2.1", 8080, "web ");
}

/** The same calls of `cni run` in turn: each starts the program, or a shim that hands it to a server. */
async function compareSpeed(): Promise<void> {
  if (!Bun.which("cc")) return console.log("\nWithout a C compiler there is no shim, so no call is served");
  const server = startShimServer({ scope: resources, state, runOptions: () => [] });
  const [cold, served]: [number[], number[]] = [[], []];
  for (let round = 0; round < SPEED_ROUNDS; round++) {
    // A signal is heard here.
    await Bun.sleep(0);
    for (const [program, times] of [[CNI_PROGRAM, cold], [join(server.shims, "cni"), served]] as const) {
      const call = (verb: "add" | "del") =>
        host.run(() => runSuccessfully(server.through(runCommand(program, verb, client.path, "client")))).ms;
      times.push(call("add"));
      call("del");
    }
  }
  const [coldText, servedText] = [cold, served].map((times) => `${median(times).toFixed(1)} ms`);
  console.log(`\ncni run add, median of ${SPEED_ROUNDS} calls: ${coldText} cold, ${servedText} by a resident server`);
}

async function main(): Promise<void> {
  if (PICTURE !== undefined) requireKept(PICTURE);
  for (const container of [web, client]) runIp(container, "link set lo up");
  connectOutside(host, outside);
  runIp(host, "route add default via 192.0.2.2");
  const result = cni("add", "web", "-p", "8080:80");
  console.log(result);
  cni("add", "client");
  console.log(`\ncni show\n${showNode("text")}`);
  const [four, six] = JSON.parse(result).ips.map((ip: { address: string }) => ip.address.split("/")[0]);
  await proveTraffic(four, six);
  if (PICTURE !== undefined) writeFileSync(PICTURE, showNode("svg"));
  console.log();
  cni("del", "web", "-p", "8080:80");
  cni("del", "client");
  await compareSpeed();
  showNothingLeft();
}

function endEarly(_: string, signal: number): never {
  resources.dispose();
  process.exit(128 + signal);
}

for (const signal of ["SIGHUP", "SIGINT", "SIGTERM"] as const) process.on(signal, endEarly);
const started = performance.now();
try {
  await main();
} catch (error) {
  report(false, "the demonstration", error instanceof Error ? error.message : String(error));
}
const seconds = ((performance.now() - started) / 1000).toFixed(1);
console.log(failures === 0 ? `\nAll checks passed, in ${seconds} s.` : `\n${failures} failed, after ${seconds} s.`);
resources.dispose();
process.exit(failures === 0 ? 0 : 1);
