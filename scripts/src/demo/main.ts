/**
 * The demonstration behind `scripts/demo`. Namespaces are open files of this process: whatever happens, nothing stays behind.
 */
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createNetns, type Netns } from "../../../ffi/netns.ts";
import * as address from "../../../ffi/route/address.ts";
import * as link from "../../../ffi/route/link.ts";
import * as route from "../../../ffi/route/route.ts";
import { listElements } from "../../../ffi/nft/objects.ts";
import { inetTable } from "../../../plugins/lib/ruleset/inet_table.ts";
import { connectHosts } from "../harness/hosts.ts";
import { CNI_BINARY } from "../harness/node.ts";
import { runProcess } from "../harness/process.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

const PEER = join(REPOSITORY_ROOT, "scripts/src/demo/peer.ts");

using resources = new DisposableStack();
const state = mkdtempSync(join(tmpdir(), "cni-demo-"));
resources.defer(() => rmSync(state, { recursive: true }));
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

let failures = 0;

/** Prints one line of the report, and counts it if it is a failure. */
function report(good: boolean, what: string, detail: string): void {
  if (!good) failures++;
  console.log(`  ${good ? "ok  " : "FAIL"}  ${what.padEnd(46)} ${detail}`);
}

/** Runs a program in a namespace to its end. */
function run(netns: Netns, ...command: string[]): { ok: boolean; text: string } {
  const { exitCode, stdout, stderr } = netns.run(() => runProcess({ argv: command }));
  return { ok: exitCode === 0, text: (exitCode === 0 ? stdout : stderr).trim() };
}

function cni(...args: string[]): string {
  const options = ["--conf-dir", state, "--cache-dir", join(state, "cache"), "--plugin-dir", join(state, "plugins")];
  const { ok, text } = run(host, CNI_BINARY, "run", ...args, ...options);
  if (!ok) throw new Error(`cni run ${args.join(" ")} failed: ${text}`);
  return text;
}

/** Starts a web server in a namespace and waits until it answers. */
async function serve(netns: Netns, name: string, port: number): Promise<void> {
  const child = netns.run(() => {
    const started = Bun.spawn([process.execPath, PEER, "serve", name, String(port)], {
      stdin: "ignore",
      stdout: "pipe",
      stderr: "inherit",
    });
    return { started };
  }).started;
  resources.defer(() => child.kill());
  const { value } = await child.stdout.getReader().read();
  if (!new TextDecoder().decode(value).startsWith("ready")) throw new Error(`the server "${name}" did not start`);
}

/** Sends a request to an HTTP server from a namespace; the answer must begin with `expected`. */
function checkHttp(what: string, netns: Netns, url: string, expected: string): void {
  const { ok, text } = run(netns, process.execPath, PEER, "get", url);
  report(
    ok && text.startsWith(expected),
    what,
    ok ? `${url} → ${text}` : `${url} → ${text.split("\n").find((line) => line.includes("rror")) ?? text}`,
  );
}

/** The elements in the maps of the ruleset: the map, and the owner. */
function ownedElements(): string[] {
  const maps = ["hostports", "hostip_hostports", "hairpin", "masquerade"].flatMap((name) => [`${name}4`, `${name}6`]);
  return maps.flatMap((map) =>
    listElements(host.nft, inetTable, map).map(({ comment }) => `${map.padEnd(14)} ${comment}`)
  );
}

/** The interfaces and addresses of each namespace. */
function showObjects(): void {
  console.log("\nWhat exists now");
  for (const [name, netns] of Object.entries(namespaces)) {
    for (const { index, name: ifname, info, master } of link.list(netns.route).filter(({ name }) => name !== "lo")) {
      const addresses = address.list(netns.route, { index }).filter(({ scope }) => scope === 0);
      const port = master ? `port of ${link.get(netns.route, master).name}` : "";
      const detail = addresses.map((entry) => entry.address).join(", ") || port;
      console.log(`  ${name.padEnd(8)} ${ifname!.padEnd(14)} ${(info?.kind ?? "").padEnd(7)} ${detail}`);
    }
    const gateways = route.list(netns.route, 2).filter(({ dst }) => dst === "0.0.0.0/0").map(({ gateway }) => gateway);
    if (gateways.length > 0) console.log(`  ${name.padEnd(8)} ${"default route".padEnd(22)} ${gateways.join(", ")}`);
  }
  for (const element of ownedElements()) console.log(`  host     ${element}`);
}

const linkNames = (netns: Netns): string[] => link.list(netns.route).map(({ name }) => name!);

function showNothingLeft(before: readonly string[]): void {
  console.log("\nWhat is left");
  const links = linkNames(host).filter((name) => !before.includes(name) && name !== "demo0");
  report(links.length === 0, "links on the host, but for the network's bridge", links.join(", ") || "none");
  for (const [name, netns] of [["web", web], ["client", client]] as const) {
    const inside = linkNames(netns).filter((ifname) => ifname !== "lo");
    report(inside.length === 0, `links in ${name}`, inside.join(", ") || "none");
  }
  const rules = ownedElements();
  report(rules.length === 0, "rules and map elements of a container", rules.join("; ") || "none");
  const reservations = readdirSync(join(state, "networks/demo")).filter((name) =>
    /^[0-9a-f.:]+$/.test(name) && name !== "lock"
  );
  report(reservations.length === 0, "reserved addresses", reservations.join(", ") || "none");
  const cached = readdirSync(join(state, "cache/results"));
  report(cached.length === 0, "cached results", cached.join(", ") || "none");
}

async function proveTraffic(webAddress: { four: string; six: string }): Promise<void> {
  await serve(web, "web", 80);
  await serve(host, "host", 9000);
  await serve(outside, "outside", 9000);
  const { four, six } = webAddress;
  console.log("\nTraffic");
  checkHttp("container to container, IPv4", client, `http://${four}/`, "web, from 10.88.0.");
  checkHttp("container to container, IPv6", client, `http://[${six}]/`, "web, from fd00:88::");
  checkHttp("container to host", client, "http://10.88.0.1:9000/", "host, from 10.88.0.");
  checkHttp(
    "container to outside, masqueraded, IPv4",
    client,
    "http://198.51.100.2:9000/",
    "outside, from 198.51.100.1",
  );
  checkHttp(
    "container to outside, masqueraded, IPv6",
    client,
    "http://[2001:db8:100::2]:9000/",
    "outside, from 2001:db8:100::1",
  );
  checkHttp("host to published port", host, "http://198.51.100.1:8080/", "web, from ");
  checkHttp("host to published port on 127.0.0.1", host, "http://127.0.0.1:8080/", "web, from ");
  checkHttp("outside to published port, IPv4", outside, "http://198.51.100.1:8080/", "web, from 198.51.100.2");
  checkHttp(
    "outside to published port, IPv6",
    outside,
    "http://[2001:db8:100::1]:8080/",
    "web, from 2001:db8:100::2",
  );
  checkHttp("container to its own published port", web, "http://198.51.100.1:8080/", "web, from ");
  checkHttp("container to its sibling's published port", client, "http://198.51.100.1:8080/", "web, from ");
}

async function main(): Promise<void> {
  const started = performance.now();
  for (const netns of Object.values(namespaces)) link.setUp(netns.route, 1);
  connectHosts(
    { netns: host, name: "uplink", addresses: ["198.51.100.1/24", "2001:db8:100::1/64"] },
    { netns: outside, name: "far", addresses: ["198.51.100.2/24", "2001:db8:100::2/64"] },
  );
  const before = linkNames(host);

  console.log("cni run add demo web -p 8080:80");
  const result = cni("add", "demo", web.path, "--container-id", "web", "-p", "8080:80");
  console.log(result);
  console.log("cni run add demo client");
  cni("add", "demo", client.path, "--container-id", "client");
  showObjects();

  const [four, six] = (JSON.parse(result).ips as { address: string }[]).map((ip) => ip.address.split("/")[0]);
  await proveTraffic({ four, six });

  console.log("\ncni run del demo web; cni run del demo client");
  cni("del", "demo", web.path, "--container-id", "web", "-p", "8080:80");
  cni("del", "demo", client.path, "--container-id", "client");
  showNothingLeft(before);

  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  console.log(
    failures === 0 ? `\nAll checks passed, in ${seconds} s.` : `\n${failures} failed, after ${seconds} s.`,
  );
}

try {
  await main();
} catch (error) {
  failures++;
  console.log(`\nFAIL  ${error instanceof Error ? error.message : error}`);
}
resources.dispose();
process.exit(failures === 0 ? 0 : 1);
