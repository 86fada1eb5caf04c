/**
 * The demonstration behind `scripts/demo`. Namespaces are open files of this process: whatever happens, nothing stays behind.
 */
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseCidr } from "../../../ffi/address.ts";
import { createNetns, type Netns } from "../../../ffi/netns.ts";
import { executeAll } from "../../../ffi/netlink/socket.ts";
import * as address from "../../../ffi/route/address.ts";
import { veth } from "../../../ffi/route/link_kinds.ts";
import * as link from "../../../ffi/route/link.ts";
import * as route from "../../../ffi/route/route.ts";
import { listElements } from "../../../ffi/nft/objects.ts";
import { inetTable } from "../../../plugins/lib/ruleset/inet_table.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

const CNI = join(REPOSITORY_ROOT, "dist/cni");
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

function say(text: string): void {
  console.log(text);
}

/** Prints one line of the report, and remembers if it is bad. */
function report(good: boolean, what: string, detail: string): void {
  if (!good) failures++;
  say(`  ${good ? "ok  " : "FAIL"}  ${what.padEnd(46)} ${detail}`);
}

/** Runs a program in a namespace to its end. */
function run(netns: Netns, ...command: string[]): { ok: boolean; text: string } {
  const { exitCode, stdout, stderr } = netns.run(() => Bun.spawnSync(command, { stdin: "ignore" }));
  return { ok: exitCode === 0, text: (exitCode === 0 ? stdout : stderr).toString().trim() };
}

function cni(...args: string[]): string {
  const options = ["--conf-dir", state, "--cache-dir", join(state, "cache"), "--plugin-dir", join(state, "plugins")];
  const { ok, text } = run(host, CNI, "run", ...args, ...options);
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

/** Asks an HTTP server from a namespace; the answer must begin with `expected`. */
function checkHttp(what: string, netns: Netns, url: string, expected: string): void {
  const { ok, text } = run(netns, process.execPath, PEER, "ask", url);
  report(
    ok && text.startsWith(expected),
    what,
    ok ? `${url} → ${text}` : `${url} → ${text.split("\n").find((line) => line.includes("rror")) ?? text}`,
  );
}

/** A cable between the host and another host, and addresses on both. */
function connectOutside(): void {
  link.add(host.route, { name: "uplink", info: veth({ peer: { name: "far", netnsFd: outside.fd } }) });
  const ends: [Netns, string, string[]][] = [
    [host, "uplink", ["198.51.100.1/24", "2001:db8:100::1/64"]],
    [outside, "far", ["198.51.100.2/24", "2001:db8:100::2/64"]],
  ];
  for (const [netns, name, addresses] of ends) {
    const { index } = link.get(netns.route, name);
    link.setUp(netns.route, index);
    executeAll(netns.route, addresses.map((cidr) => address.addRequest(index, parseCidr(cidr), { noDad: true })));
  }
}

/** The elements in the maps of the ruleset: the map, and whose it is. */
function ownedElements(): string[] {
  const maps = ["hostports", "hostip_hostports", "hairpin", "masquerade"].flatMap((name) => [`${name}4`, `${name}6`]);
  return maps.flatMap((map) =>
    listElements(host.nft, inetTable, map).map(({ comment }) => `${map.padEnd(14)} ${comment}`)
  );
}

/** What an administrator would look at: who has which interface and address. */
function showObjects(): void {
  say("\nWhat exists now");
  for (const [name, netns] of Object.entries(namespaces)) {
    for (const device of link.list(netns.route).filter((device) => device.name !== "lo")) {
      const addresses = address.list(netns.route, { index: device.index }).filter((entry) => entry.scope === 0).map((
        entry,
      ) => entry.address);
      const master = device.master ? `port of ${link.get(netns.route, device.master).name}` : "";
      say(
        `  ${name.padEnd(8)} ${device.name!.padEnd(14)} ${(device.info?.kind ?? "").padEnd(7)} ${
          addresses.join(", ") || master
        }`,
      );
    }
    const gateways = route.list(netns.route, 2).filter((device) => device.dst === "0.0.0.0/0").map((device) =>
      device.gateway
    );
    if (gateways.length > 0) say(`  ${name.padEnd(8)} ${"default route".padEnd(22)} ${gateways.join(", ")}`);
  }
  for (const device of ownedElements()) say(`  host     ${device}`);
}

function showNothingLeft(before: readonly string[]): void {
  say("\nWhat is left");
  const links = link.list(host.route).map((device) => device.name!).filter((name) =>
    !before.includes(name) && name !== "demo0"
  );
  report(links.length === 0, "links on the host, but for the network's bridge", links.join(", ") || "none");
  for (const [name, netns] of [["web", web], ["client", client]] as const) {
    const inside = link.list(netns.route).map((device) => device.name!).filter((device) => device !== "lo");
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
  say("\nTraffic");
  checkHttp("container to container, IPv4", client, `http://${four}/`, "web, asked from 10.88.0.");
  checkHttp("container to container, IPv6", client, `http://[${six}]/`, "web, asked from fd00:88::");
  checkHttp("container to host", client, "http://10.88.0.1:9000/", "host, asked from 10.88.0.");
  checkHttp(
    "container to outside, masqueraded, IPv4",
    client,
    "http://198.51.100.2:9000/",
    "outside, asked from 198.51.100.1",
  );
  checkHttp(
    "container to outside, masqueraded, IPv6",
    client,
    "http://[2001:db8:100::2]:9000/",
    "outside, asked from 2001:db8:100::1",
  );
  checkHttp("host to published port", host, "http://198.51.100.1:8080/", "web, asked from ");
  checkHttp("host to published port on 127.0.0.1", host, "http://127.0.0.1:8080/", "web, asked from ");
  checkHttp("outside to published port, IPv4", outside, "http://198.51.100.1:8080/", "web, asked from 198.51.100.2");
  checkHttp(
    "outside to published port, IPv6",
    outside,
    "http://[2001:db8:100::1]:8080/",
    "web, asked from 2001:db8:100::2",
  );
  checkHttp("container to its own published port", web, "http://198.51.100.1:8080/", "web, asked from ");
  checkHttp("container to its sibling's published port", client, "http://198.51.100.1:8080/", "web, asked from ");
}

async function main(): Promise<void> {
  const started = performance.now();
  for (const netns of Object.values(namespaces)) link.setUp(netns.route, 1);
  connectOutside();
  const before = link.list(host.route).map((device) => device.name!);

  say("cni run add demo web -p 8080:80");
  const result = cni("add", "demo", web.path, "--container-id", "web", "-p", "8080:80");
  say(result);
  say("cni run add demo client");
  cni("add", "demo", client.path, "--container-id", "client");
  showObjects();

  const [four, six] = (JSON.parse(result).ips as { address: string }[]).map((ip) => ip.address.split("/")[0]);
  await proveTraffic({ four, six });

  say("\ncni run del demo web; cni run del demo client");
  cni("del", "demo", web.path, "--container-id", "web", "-p", "8080:80");
  cni("del", "demo", client.path, "--container-id", "client");
  showNothingLeft(before);

  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  say(failures === 0 ? `\nEverything as it should be, in ${seconds} s.` : `\n${failures} failed, after ${seconds} s.`);
}

try {
  await main();
} catch (error) {
  failures++;
  say(`\nFAIL  ${error instanceof Error ? error.message : error}`);
}
resources.dispose();
process.exit(failures === 0 ? 0 : 1);
