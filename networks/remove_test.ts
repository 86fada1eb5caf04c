import { withoutMark } from "../testing/ruleset.ts";
import { beforeAll, expect } from "bun:test";
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import { loadPlugins } from "../plugins/registry.ts";
import { CniError } from "../spec/error.ts";
import type { RemovedNetwork } from "./remove.ts";
import { newNetworksSite } from "../testing/networks.ts";
import { netnsTest, runInNetns, runShellInNetns } from "../testing/netns.ts";

beforeAll(() => loadPlugins());

const linksOf = (host: Netns) => runInNetns(host, "ip", "-o", "link").match(/(?<=^\d+: )[^:@]+/gm);
const elementsOf = (host: Netns) =>
  withoutMark(runInNetns(host, "nft", "list", "ruleset")).match(/elements = .*/g) ?? [];

function addressesOf(host: Netns, name: string): string[] {
  return runInNetns(host, "ip", "-o", "-4", "addr", "show", "dev", name).match(/(?<=inet )\S+/g) ?? [];
}

function problemOf(call: () => unknown): string {
  try {
    call();
  } catch (error) {
    const { message, details } = CniError.from(error);
    return `${message}; ${details}`;
  }
  return "";
}

netnsTest("a network is listed with its addresses, shown with its ports, and removed once nobody uses it", (spaces) => {
  const { host, container } = spaces;
  using site = newNetworksSite();
  const { add, ls, inspect, rm } = site.on(host);
  const { file } = site.create(host, "web", { ipv6: true });
  add("web", "c1", container, [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }]);
  const [builtIn, web] = ls();
  expect(builtIn).toMatchObject({ name: "default", driver: "bridge", subnets: ["10.63.0.0/16", expect.any(String)] });
  expect(web).toMatchObject({
    ...{ name: "web", file, driver: "bridge", attachments: 1 },
    pools: [{ subnets: ["10.64.0.0/24"], gateways: ["10.64.0.1"], used: 1, free: 252 }, { used: 1 }],
  });
  expect(inspect("web")).toMatchObject({
    ...{ cniVersion: "1.1.0", configuration: { name: "web" }, otherUsers: [] },
    requests: [{ type: "bridge", request: { name: "web", bridge: "cni-web" } }, { type: "portmap" }, {
      type: "firewall",
    }],
    attachments: [{
      ...{ containerId: "c1", state: "attached", addresses: ["10.64.0.2/24", expect.any(String)] },
      portMappings: [{ hostPort: 8080, containerPort: 80 }],
    }],
  });
  expect(problemOf(() => rm(["web"]))).toContain(
    'container "c1" uses it (eth0, attached); detach them with "cni run del',
  );
  expect(existsSync(file)).toBe(true);

  const [removed] = rm(["web"], true);
  expect(removed?.steps.map(({ action }) => action)).toEqual([
    ...["detach", "clean", "remove-link", "remove-directory", "remove-file"] as const,
  ]);
  expect(linksOf(host)).toEqual(["lo"]);
  expect(linksOf(container)).toEqual(["lo"]);
  expect(elementsOf(host)).toEqual([]);
  expect(readdirSync(site.state)).toEqual([]);
  expect(readdirSync(site.conf)).toEqual([]);
  expect(site.runtime.attachments()).toEqual([]);
});

netnsTest("what another network or person uses stays", ({ host, container }) => {
  using site = newNetworksSite();
  const { add, rm, unused } = site.on(host);
  const bridge = { options: new Map([["bridge", "br0"]]) };
  site.create(host, "web", bridge);
  site.create(host, "db", bridge);
  add("web", "c1", container);
  expect(unused()).toEqual(["db"]);
  rm(["db"]);
  expect(site.log).toContainEqual(expect.stringContaining('The bridge "br0" stays: network "web"'));
  expect(linksOf(host)).toContain("br0");
  runInNetns(host, "ip", "address", "add", "192.0.2.1/24", "dev", "br0");
  rm(["web"], true);
  expect(site.log).toContainEqual(expect.stringContaining("it has the address 192.0.2.1/24"));
  expect(linksOf(host)).toEqual(["lo", "br0"]);
  // The network's gateway has gone.
  expect(addressesOf(host, "br0")).toEqual(["192.0.2.1/24"]);
});

netnsTest("a bridge that cni did not create stays", ({ host, container }) => {
  using site = newNetworksSite();
  const { add, rm } = site.on(host);
  runInNetns(host, "ip", "link", "add", "br0", "type", "bridge");
  site.create(host, "web", { options: new Map([["bridge", "br0"]]) });
  add("web", "c1", container);
  rm(["web"], true);
  expect(site.log).toEqual([
    'The bridge "br0" stays: cni did not create it, or was older and left no mark; "ip link delete br0" removes it',
  ]);
  expect(linksOf(host)).toEqual(["lo", "br0"]);
  expect(addressesOf(host, "br0")).toEqual([]);
});

netnsTest("a gateway address stays on a bridge while something else may need it", ({ host, container }) => {
  using site = newNetworksSite();
  const { add, rm } = site.on(host);
  const write = (name: string, dataDir: string) => {
    const ipam = { type: "host-local", dataDir, subnet: "10.5.0.0/24" };
    const plugins = [{ type: "bridge", bridge: "br0", isGateway: true, ipam }];
    site.write(`10-${name}.conflist`, { cniVersion: "1.0.0", name, plugins });
  };
  const removeWith = (change: string, undo: string) => {
    write("web", site.state);
    add("web", "c1", container);
    runShellInNetns(host, change);
    const actions = rm(["web"], true).flatMap(({ steps }) => steps.map(({ action }) => action));
    const addresses = addressesOf(host, "br0");
    expect(actions.includes("remove-address")).toBe(!addresses.includes("10.5.0.1/24"));
    runShellInNetns(host, undo);
    return addresses;
  };
  expect(removeWith("ip addr add 10.5.0.9/24 dev br0", "ip addr del 10.5.0.9/24 dev br0")).toContain("10.5.0.1/24");
  expect(removeWith("ip route add 10.9.0.0/16 via 10.5.0.7", "ip route del 10.9.0.0/16")).toEqual(["10.5.0.1/24"]);
  expect(
    removeWith("ip route add 10.9.0.0/16 dev br0 src 10.5.0.1", "ip route del 10.9.0.0/16"),
  ).toEqual(["10.5.0.1/24"]);
  write("twin", `${site.state}/twin`);
  expect(removeWith("true", `rm ${site.conf}/10-twin.conflist`)).toEqual(["10.5.0.1/24"]);
  expect(removeWith("ip link add up0 type veth peer name up1; ip link set up0 master br0", "true")).toEqual([]);
});

netnsTest("a gateway address goes from a bridge that a network with a mistake shares", ({ host, container }) => {
  using site = newNetworksSite();
  const { add, rm } = site.on(host);
  const write = (name: string, range: object) => {
    const ipam = { type: "host-local", dataDir: site.state, ...range };
    const plugins = [{ type: "bridge", bridge: "br0", isGateway: true, ipam }];
    site.write(`10-${name}.conflist`, { cniVersion: "1.0.0", name, plugins });
  };
  write("web", { subnet: "10.5.0.0/24" });
  write("wrong", { subnet: "10.6.0.0/24", rangeStart: "10.7.0.1" });
  add("web", "c1", container);
  rm(["web"], true);
  expect(site.log).toEqual([expect.stringContaining('The bridge "br0" stays: network "wrong" in')]);
  expect(addressesOf(host, "br0")).toEqual([]);
});

netnsTest("a bridge stays while a link is on top of it, or somebody's route uses it", ({ host, container }) => {
  using site = newNetworksSite();
  const { add, rm } = site.on(host);
  const reasonToKeep = (name: string, change: string) => {
    site.create(host, name, { ipv6: true });
    add(name, "c1", container);
    runShellInNetns(host, change);
    rm([name], true);
    expect(linksOf(host)).toContain(`cni-${name}`);
    return site.log.find((line) => line.startsWith(`The bridge "cni-${name}" stays: `))?.split(": ")[1];
  };
  expect(reasonToKeep("a", "ip link add mv0 link cni-a type macvlan")).toBe('the macvlan "mv0" is on top of it');
  expect(linksOf(host)).toContain("mv0");
  expect(reasonToKeep("b", "ip route add 10.99.0.0/16 dev cni-b table 7")).toBe(
    "the route to 10.99.0.0/16, which cni did not add, uses it",
  );
  const plugins = [{ type: "ipvlan", master: "cni-c" }];
  site.write("90-upper.conflist", { cniVersion: "1.0.0", name: "upper", plugins });
  expect(reasonToKeep("c", "true")).toContain('network "upper" in');
});

netnsTest("a directory with a file of somebody else stays, and no step says otherwise", ({ host, container }) => {
  using site = newNetworksSite();
  const { add, rm } = site.on(host);
  site.create(host, "web");
  add("web", "c1", container);
  writeFileSync(`${site.state}/web/notes.txt`, "");
  const actions = rm(["web"], true).flatMap(({ steps }) => steps.map(({ action }) => action));
  expect(actions).toEqual(["detach", "clean", "remove-link", "remove-file"]);
  expect(readdirSync(`${site.state}/web`)).toEqual(["notes.txt"]);
  expect(site.log).toContainEqual(`"${site.state}/web" stays: "notes.txt" in it is not of host-local`);
});

netnsTest("containers that the cache does not know count as users", ({ host, container }) => {
  using site = newNetworksSite();
  const { add, rm, inspect, unused } = site.on(host);
  site.create(host, "web");
  add("web", "c1", container);
  Bun.spawnSync(["rm", "-r", `${site.cache}/results`]);
  expect(unused()).toEqual([]);
  expect(problemOf(() => rm(["web"]))).toContain('container "c1" uses it (eth0, a link of the host)');
  expect(inspect("web").otherUsers).toEqual([{ containerId: "c1", ifname: "eth0", evidence: "a link of the host" }]);
  rm(["web"], true);
  expect([linksOf(host), elementsOf(host), readdirSync(site.conf)]).toEqual([["lo"], [], []]);
});

netnsTest(
  "prune leaves networks of others, unless told; those without a container are unused",
  ({ host, container }) => {
    using site = newNetworksSite();
    const { add, rm, unused, ls } = site.on(host);
    const plugins = [{ type: "ptp", ipam: { type: "host-local", dataDir: site.state, subnet: "10.5.0.0/24" } }];
    site.write("10-other.conflist", { cniVersion: "1.0.0", name: "other", plugins });
    site.write("12-bad.conflist", "{");
    site.create(host, "web");
    add("web", "c1", container);
    const entry = `${site.cache}/results/web-c1-eth0`;
    writeFileSync(entry, Bun.spawnSync(["sed", 's|/proc/[^"]*|/nonexistent|g', entry]).stdout);
    expect([unused(), unused(true)]).toEqual([["web"], ["other", "web"]]);
    rm(["web"]);
    expect(site.runtime.attachments()).toEqual([]);
    expect(ls().map(({ name }) => name)).toEqual(["default", "other"]);
    expect(site.log).toContainEqual(expect.stringMatching(/^Ignoring configuration file ".*12-bad\.conflist"/));
  },
);

netnsTest("without force a failure stops the removal, with it the rest is removed", ({ host }) => {
  using site = newNetworksSite();
  const { rm, ls } = site.on(host);
  const file = site.write("10-old.conflist", { cniVersion: "1.1.0", name: "old", plugins: [{ type: "nosuch" }] });
  expect(problemOf(() => rm(["old"]))).toMatch(/"nosuch".*; "cni network rm --force" removes the rest all the same$/s);
  expect(existsSync(file)).toBe(true);
  expect(problemOf(() => rm(["old"], true))).toContain('"nosuch"');
  expect(existsSync(file)).toBe(false);
  const plugins = [{ type: "bridge", mtu: -1, ipam: { type: "host-local", dataDir: site.state, subnet: "wrong" } }];
  site.write("10-wrong.conflist", { cniVersion: "1.0.0", name: "wrong", plugins });
  expect(problemOf(() => rm(["wrong"], true))).toContain("mtu must be");
  expect(site.log).toContainEqual(expect.stringMatching(/^What plugin "bridge" made stays: .*mtu/));
  expect(ls().map(({ name }) => name)).toEqual(["default"]);
  rmSync(site.conf, { recursive: true });
  expect(ls().map(({ name }) => name)).toEqual(["default"]);
  expect(site.log).toContainEqual(`There is no directory "${site.conf}", so no network is configured`);
});

netnsTest("what was removed before a failure is told", ({ host }) => {
  using site = newNetworksSite();
  const { rm, ls } = site.on(host);
  for (const name of ["a", "c"]) site.create(host, name);
  site.write("20-bad.conflist", { cniVersion: "1.1.0", name: "bad", plugins: [{ type: "nosuch" }] });
  const removed: RemovedNetwork[] = [];
  expect(problemOf(() => rm(["a", "bad", "c"], false, removed))).toContain('"nosuch"');
  expect(removed.map(({ name, steps }) => [name, ...steps.map(({ action }) => action)])).toEqual([
    ["a", "clean", "remove-file"],
    ["bad"],
  ]);
  expect(removed.map(({ failure }) => failure?.message.includes('"nosuch"'))).toEqual([undefined, true]);
  expect(ls().map(({ name }) => name)).toEqual(["bad", "c", "default"]);
  // With force, the others follow.
  const forced: RemovedNetwork[] = [];
  expect(problemOf(() => rm(["bad", "c"], true, forced))).toContain('"nosuch"');
  expect(forced.map(({ name, steps }) => [name, ...steps.map(({ action }) => action)])).toEqual([
    ["bad", "remove-file"],
    ["c", "clean", "remove-file"],
  ]);
});

for (const [names, left] of [[["web", "db"], ["db", "default"]], [["db"], ["db", "default", "web"]]] as const) {
  netnsTest(`a container that comes during rm ${names} stays attached`, ({ host, container }) => {
    using site = newNetworksSite();
    const { add, ls } = site.on(host);
    const bridge = { options: new Map([["bridge", "br0"]]) };
    for (const name of ["db", "web"]) site.create(host, name, bridge);
    runInNetns(host, "ip", "link", "add", "br0", "type", "bridge");
    // Why the bridge stays is logged between the first look at all networks and the first change.
    const { rm } = site.on(host, () => add("db", "c1", container));
    expect(problemOf(() => rm(names))).toMatch(
      /^Cannot remove network "db": container "c1" uses it .*; detach them with/,
    );
    expect(site.log).toEqual([expect.stringContaining('The bridge "br0" stays')]);
    expect(site.runtime.attachments()).toHaveLength(1);
    expect(linksOf(container)).toEqual(["lo", "eth0"]);
    expect(ls().map(({ name }) => name)).toEqual([...left]);
  });
}

netnsTest("prune skips a network that a container has come to use", ({ host, container }) => {
  using site = newNetworksSite();
  const { add, prune, unused } = site.on(host);
  for (const name of ["db", "web"]) site.create(host, name);
  const found = unused();
  add("db", "c1", container);
  expect([found, prune(found)]).toEqual([["db", "web"], ["web"]]);
  expect(site.log).toEqual([
    'Cannot remove network "db": container "c1" uses it (eth0, attached)',
  ]);
  expect(linksOf(container)).toEqual(["lo", "eth0"]);
});

netnsTest("of a directory that host-local shares with a person, only host-local's files go", ({ host, container }) => {
  using site = newNetworksSite();
  const { add, rm } = site.on(host);
  site.create(host, "web");
  add("web", "c1", container);
  const directory = join(site.state, "web");
  const foreign = [".bashrc", ".bashrc.swp", ".cache.tmp", ".ssh:old", "notes"];
  for (const name of [...foreign, ".new.x1.tmp", ".last_reserved_ip.0.x1.tmp", ".c9:eth0:00000001"]) {
    writeFileSync(join(directory, name), "text");
  }
  rm(["web"], true);
  expect(readdirSync(directory).sort()).toEqual(foreign);
  expect(site.log).toEqual([expect.stringMatching(/^".*\/web" stays: ".*" in it is not of host-local$/)]);
  expect(readdirSync(site.conf)).toEqual([]);
});

netnsTest("a path in any spelling is the file of the directory", ({ host, container }) => {
  using site = newNetworksSite();
  const { add, inspect, rm } = site.on(host);
  const link = join(site.conf, "link");
  const spellings = [
    (file: string) => file.replace("/conf/", "//conf/../conf/./"),
    (file: string) => relative(process.cwd(), file),
    (file: string) => (symlinkSync(file, link), link),
  ];
  for (const spell of spellings) {
    const { file } = site.create(host, "web");
    const alias = join(site.conf, "90-alias.conflist");
    symlinkSync(file, alias);
    add("web", "c1", container);
    const path = spell(file);
    expect(inspect(path).file).toBe(file);
    rm([path], true);
    expect(site.log).toEqual([]);
    expect([linksOf(host), existsSync(file), readdirSync(site.state)]).toEqual([["lo"], false, []]);
    rmSync(alias);
  }
  const { file } = site.create(host, "web");
  const outside = `${site.state}.conflist`;
  renameSync(file, outside);
  symlinkSync(outside, file);
  expect(rm([outside])[0]?.steps.at(-1)?.target).toBe(file);
  expect(existsSync(outside)).toBe(true);
});

netnsTest("a file whose state cannot be found is named, and keeps nothing of other networks", ({ host }) => {
  using site = newNetworksSite();
  const { prune, rm, unused } = site.on(host);
  const write = (name: string, dataDir: unknown) =>
    site.write(`10-${name}.conflist`, {
      ...{ cniVersion: "1.1.0", name },
      plugins: [{ type: "ptp", ipam: { type: "host-local", dataDir, subnet: "10.5.0.0/24" } }],
    });
  const bad = write("bad", 5);
  write("new", site.state);
  rm(["new"]);
  // Without state and bridge it shares nothing, so other files are not read.
  expect(site.log).toEqual([]);
  write("web", site.state);
  mkdirSync(join(site.state, "web"), { recursive: true });
  const problem = 'Cannot use network "bad": ipam.dataDir must be';
  expect(unused(true)).toEqual(["web"]);
  expect(prune(["web"])).toEqual(["web"]);
  expect(readdirSync(site.state)).toEqual([]);
  const ignored = expect.stringContaining(`Ignoring configuration file "${bad}": ${problem}`);
  expect(site.log).toEqual([ignored, ignored]);
  expect(problemOf(() => rm(["bad"]))).toMatch(
    new RegExp(`^${problem} .*; ${bad}; "cni network rm --force" removes the rest`),
  );
  expect(problemOf(() => rm(["bad"], true))).toContain(problem);
  expect(readdirSync(site.conf)).toEqual([]);
});
