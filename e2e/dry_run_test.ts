/** `--dry-run` of add, del, gc and restore: it changes nothing of a machine, and names what the command then changes. */
import { expect } from "bun:test";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createNetns, type Netns } from "../ffi/netns/netns.ts";
import type { DryRunDocument } from "../cmd/arguments/dry_run.ts";
import { CNI_UNDER_TEST, finishedProcess, SERVER_ENV, testWith } from "../testing/binary.ts";
import { linkNames, runInNetns, runShellInNetns, until } from "../testing/netns.ts";

interface DryRunNode extends Disposable {
  readonly host: Netns;
  readonly containers: readonly [Netns, Netns];
  readonly directory: string;
  /** Runs `cni` with state of the node's own. */
  cni(...words: readonly string[]): ReturnType<typeof finishedProcess>;
  /** Runs `cni run`. */
  run(...words: readonly string[]): ReturnType<typeof finishedProcess>;
  /** Everything of the node that a command could change. */
  snapshot(): string;
}

function newNode(): DryRunNode {
  using resources = new DisposableStack();
  const [host, first, second] = [createNetns, createNetns, createNetns].map((create) => resources.use(create())) as [
    ...[Netns, Netns, Netns],
  ];
  // The kernel needs time for IPv6 addresses: they would come between two looks.
  const withoutIpv6 = "for each in all default; do echo 1 >/proc/sys/net/ipv6/conf/$each/disable_ipv6; done";
  for (const netns of [host, first, second]) runShellInNetns(netns, withoutIpv6, "ip link set lo up");
  const directory = mkdtempSync(join(tmpdir(), "cni-dry-run-"));
  resources.defer(() => rmSync(directory, { recursive: true, force: true }));
  const ipam = { type: "host-local", dataDir: join(directory, "ipam"), ranges: [[{ subnet: "10.57.0.0/24" }]] };
  const plugins = [
    { type: "bridge", bridge: "dry0", isGateway: true, ipMasq: true, ipam },
    { type: "portmap", capabilities: { portMappings: true } },
    { type: "firewall" },
    { type: "bandwidth", ingressRate: 1_000_000, ingressBurst: 1_000_000 },
    { type: "tuning", dataDir: join(directory, "tuning"), sysctl: { "net.ipv4.conf.IFNAME.arp_filter": "1" } },
  ];
  mkdirSync(join(directory, "net.d"));
  writeFileSync(join(directory, "net.d/dry.conflist"), JSON.stringify({ cniVersion: "1.1.0", name: "dry", plugins }));
  const options = ["--conf-dir", join(directory, "net.d"), "--cache-dir", join(directory, "cache")];
  const env = { PATH: process.env["PATH"], DBUS_SYSTEM_BUS_ADDRESS: "unix:path=/nonexistent/bus", ...SERVER_ENV };
  const containers = [first, second] as const;
  const cni = (...words: readonly string[]) =>
    host.run(() =>
      finishedProcess(
        Bun.spawnSync([CNI_UNDER_TEST, ...words, ...options, "--plugin-dir", join(directory, "bin")], {
          ...{ cwd: directory, env, stdout: "pipe", stderr: "pipe" },
        }),
      )
    );
  const owned = resources.move();
  return {
    ...{ host, containers, directory },
    cni,
    run: (...words) => cni("run", ...words),
    snapshot: () => [...[host, ...containers].map(namespaceState), fileState(directory)].join("\n"),
    [Symbol.dispose]: () => owned.dispose(),
  };
}

/** Without what changes by itself: timers, counters of packets and connections. */
function namespaceState(netns: Netns): string {
  return runShellInNetns(
    netns,
    "ip -d -o link | sed 's/[a-z_]*timer *[0-9.]*//g'",
    "ip -d -o addr",
    "ip -d route show table all; ip -6 -d route show table all; ip rule; ip -6 rule",
    "tc qdisc show; tc filter show",
    "nft -s -a list ruleset",
    "grep -rs . /proc/sys/net --exclude=nf_conntrack_count --exclude=*lease* || :",
  );
}

/** Also times of directories: a file that came and went leaves its mark there. */
function fileState(directory: string): string {
  const { stdout } = Bun.spawnSync(["find", directory, "-printf", "%p %y %m %s %i %T@ %C@\n"]);
  return stdout.toString().split("\n").sort().join("\n");
}

function attach(node: DryRunNode): void {
  for (const [i, container] of node.containers.entries()) {
    const added = node.run("add", "dry", container.path, "--container-id", `c${i}`, "-p", `${8000 + i}:80`);
    if (added.exitCode !== 0) throw new Error(JSON.stringify(added));
  }
}

/** Waits for carriers, which the kernel tells of later. */
async function settle({ host, containers }: DryRunNode): Promise<void> {
  for (const netns of [host, ...containers]) {
    const links = () => runInNetns(netns, "ip", "-o", "link").replace(/^.* idle0: .*$/m, "");
    await until(() => !/NO-CARRIER|LOWERLAYERDOWN|state DOWN/.test(links()));
  }
}

async function dryRun(node: DryRunNode, ...words: readonly string[]): Promise<DryRunDocument> {
  await settle(node);
  const before = node.snapshot();
  const text = node.run(...words, "--dry-run", "--verbose");
  expect(text).toMatchObject({ exitCode: 0 });
  const json = node.run(...words, "--dry-run", "--json");
  expect(json.exitCode).toBe(0);
  expect(node.snapshot()).toBe(before);
  const document: DryRunDocument = JSON.parse(json.stdout);
  // Both are the same dry run in other words, except names that ADD makes up.
  const withoutNames = (sentence: string) =>
    sentence.replace(/"veth\w{8}"|name=veth\w{8}/g, "veth").replace(/group=\d+/, "group");
  const told = document.effects.filter(({ target }) => !target.endsWith("lock"));
  const sentences = new Set(told.map(({ sentence }) => withoutNames(sentence)));
  const lines = text.stdout.split("\n").flatMap((line) => /^ {2}would (.*?)(?: \(\d+ times\))?$/.exec(line)?.[1] ?? []);
  expect(new Set(lines.map(withoutNames))).toEqual(sentences);
  return document;
}

interface ChromeEvent {
  readonly cat: string;
  readonly name: string;
  readonly args: { readonly details?: readonly string[] };
}

/** What the command itself then changes, by its own trace. */
function changesOf(node: DryRunNode, ...words: readonly string[]) {
  const path = join(node.directory, "trace.json");
  const { exitCode, stderr } = node.run(...words, "--trace-file", path, "--trace-format", "chrome");
  expect({ exitCode, stderr: exitCode === 0 ? "" : stderr }).toEqual({ exitCode: 0, stderr: "" });
  const { stdout } = Bun.spawnSync(["cat", path]);
  const events: readonly ChromeEvent[] = JSON.parse(stdout.toString());
  const details = (...kinds: string[]) =>
    events.filter(({ cat }) => kinds.includes(cat)).flatMap(({ args }) => args.details ?? []);
  return {
    rules: details("nft").map(withoutAck),
    links: details("netlink").filter((text) => /^RTM_DELLINK/.test(text)),
    linkChanges: details("netlink").filter((text) => /^RTM_NEWLINK/.test(text)).map(withoutDescriptor),
    removedFiles: events.filter(({ cat, args }) => cat === "file" && args.details?.includes("remove"))
      .map(({ name }) => name),
  };
}

/** One acknowledgement ends a transaction. Handles of rules are those of the copy in a dry run. */
function withoutAck(text: string): string {
  return text.replace(/, ack\)$/, ")").replace(/ \(ack\)$/, "").replace(/ handle=\d+/, "");
}

/** Descriptors of namespaces differ each time. */
const withoutDescriptor = (text: string): string => text.replace(/netnsFd=\d+/, "netnsFd");

const rulesOf = ({ effects }: DryRunDocument) => [
  ...new Set(effects.filter(({ kind }) => kind === "nft").flatMap(({ details = [] }) => details.map(withoutAck))),
];

const removedBy = ({ effects }: DryRunDocument, kind: string): string[] =>
  effects.filter((effect) => effect.kind === kind && effect.action === "remove").map(({ target }) => target);

testWith(["ip", "nft", "tc"], "del, gc and restore change nothing with --dry-run, and then what it said", async () => {
  using node = newNode();
  attach(node);
  const del = await dryRun(node, "del", "dry", node.containers[0].path, "--container-id", "c0");
  expect(del.failure).toBeUndefined();
  expect(new Set(del.effects.map(({ plugin }) => plugin?.split(" ")[0]))).toEqual(
    new Set(["tuning", "firewall", "portmap", "bridge", "host-local", undefined]),
  );
  const gc = await dryRun(node, "gc", "dry", "--valid", "c1");
  expect(removedBy(gc, "link").sort()).toEqual(removedBy(del, "link").sort());

  const deleted = changesOf(node, "del", "dry", node.containers[0].path, "--container-id", "c0");
  expect(rulesOf(del)).toEqual(deleted.rules);
  expect(deleted.links).toHaveLength(removedBy(del, "link").length);
  expect(removedBy(del, "file").filter((path) => !deleted.removedFiles.includes(path))).toEqual([]);
  expect(removedBy(del, "file").filter((path) => existsSync(path))).toEqual([]);

  runInNetns(node.host, "nft", "flush", "ruleset");
  const restore = await dryRun(node, "restore", "dry");
  expect(restore.effects.every(({ kind }) => kind === "nft")).toBe(true);
  expect(rulesOf(restore)).toEqual([...new Set(changesOf(node, "restore", "dry").rules)]);

  const last = await dryRun(node, "gc", "dry", "--all");
  expect(rulesOf(last)).toEqual(changesOf(node, "gc", "dry", "--all").rules);
  expect(removedBy(last, "file").filter((path) => existsSync(path))).toEqual([]);
  // Each GC lists the reservations anew.
  const index = `replace file "${node.directory}/ipam/.dry.index"`;
  expect(node.run("gc", "dry", "--all", "--dry-run", "--verbose").stdout).toBe(`host-local GC\n  would ${index}\n`);
  expect(node.run("gc", "dry", "--all", "--dry-run").stdout).toBe(`would ${index}\n`);
});

testWith(["ip", "nft", "tc"], "add says with --dry-run which address it will give, and what it will do", async () => {
  using node = newNode();
  // A bridge that has lost its ports has no MAC address.
  runShellInNetns(
    node.host,
    "ip link add name idle0 type bridge",
    "ip addr add 10.58.0.1/24 dev idle0",
    "ip link add name port0 master idle0 type veth peer name port1",
    "ip link del port0",
  );
  for (const [i, container] of node.containers.entries()) {
    const words = ["add", "dry", container.path, "--container-id", `c${i}`, "-p", `${8000 + i}:80`];
    const { effects, result, failure, notes } = await dryRun(node, ...words);
    expect({ failure, notes }).toEqual({ failure: undefined, notes: [] });
    const expected = `10.57.0.${2 + i}/24`;
    expect(result).toMatchObject({ ips: [{ address: expected }] });
    const summary = node.run(...words, "--dry-run").stdout;
    expect(summary).toStartWith(`"eth0" would get ${expected} with gateway 10.57.0.1\n`);
    expect(summary).toContain(`would publish port ${8000 + i}/tcp\n`);
    expect(summary.split("\n").length).toBeLessThan(25);
    expect(JSON.stringify(result)).toContain(`"sandbox":"${container.path}"`);
    const changes = changesOf(node, ...words);
    expect(rulesOf({ effects, notes: [] })).toEqual([...new Set(changes.rules)]);
    const isNewBridge = effects.some(({ sentence }) => sentence === 'add bridge "dry0" in host');
    expect(isNewBridge).toBe(i === 0);
    expect(runInNetns(container, "ip", "-o", "-4", "addr", "show", "eth0")).toContain(expected);
    const inContainer = `in ${container.path}`;
    expect(effects.map(({ sentence }) => sentence)).toEqual(expect.arrayContaining([
      expect.stringMatching(
        /^add link "eth0" in the container and its peer "veth\w{8}" \(a random name\), a port of "dry0" in host$/,
      ),
      expect.stringMatching(/^give link "veth\w{8}" the alternative name "cni:bridge:dry0:/),
      `set net.ipv4.conf.eth0.arp_notify = 1 ${inContainer}`,
      `set net.ipv4.conf.eth0.arp_filter = 1 ${inContainer}`,
    ]));
    const parameters = effects.filter(({ kind }) => kind === "sysctl");
    expect(parameters.filter(({ netns, sentence }) => !netns || !sentence.endsWith(` in ${netns}`))).toEqual([]);
    if (isNewBridge) expect(parameters.map(({ netns }) => netns)).toContain("host");
    const addresses = effects.filter(({ kind, netns }) => kind === "address" && netns === container.path);
    expect(addresses.map(({ sentence }) => sentence)).toEqual([
      `add address ${expected} to link "eth0" in ${container.path}`,
    ]);
  }
  const again = node.run("add", "dry", node.containers[0].path, "--container-id", "c0", "--dry-run");
  expect(again).toMatchObject({ exitCode: 1, stdout: "" });
  expect(again.stderr).toContain("it is attached already");
  const taken = node.run("add", "dry", node.containers[0].path, "--container-id", "c2", "--ifname", "lo", "--dry-run");
  expect(taken.exitCode).toBe(1);
  expect(taken.stderr).toContain("give another CNI_IFNAME (cni run: --ifname)");
});

testWith([], "add says that a program of the host has the port", async () => {
  using node = newNode();
  // Not this process: an engine may reserve the ports of its containers.
  const script = 'Bun.listen({ hostname: "0.0.0.0", port: 8000, socket: { data() {} } }); console.log("listening")';
  await using listener = node.host.run(() => Bun.spawn([process.execPath, "-e", script], { stdout: "pipe" }));
  await listener.stdout.getReader().read();
  const words = ["add", "dry", node.containers[0].path, "--container-id", "c0", "-p", "8000:80"];
  const [dry, real] = [node.run(...words, "--dry-run"), node.run(...words)];
  expect([dry.exitCode, real.exitCode]).toEqual([1, 1]);
  expect(real.stderr).toContain("8000/tcp");
  expect(dry.stderr).toBe(real.stderr);
});

testWith([], "add says where a device of the host makes a dry run impossible", () => {
  using node = newNode();
  const path = join(node.directory, "net.d/device.conflist");
  const plugins = [{ type: "host-device", device: "lo" }];
  writeFileSync(path, JSON.stringify({ cniVersion: "1.1.0", name: "device", plugins }));
  const { exitCode, stderr } = node.run("add", "device", node.containers[0].path, "--dry-run");
  expect(exitCode).toBe(1);
  expect(stderr).toContain("it moves a device of the host, and a copy of the host does not have the device");
});

testWith(["ip", "nft", "tc"], "add names the container as the place of a link that is made in it", async () => {
  using node = newNode();
  const [{ path }] = node.containers;
  runShellInNetns(node.host, "ip link add up0 type veth peer name far0; ip link set up0 up; ip link set far0 up");
  const plugins = [{ type: "macvlan", master: "up0" }];
  const file = join(node.directory, "net.d/lower.conflist");
  writeFileSync(file, JSON.stringify({ cniVersion: "1.1.0", name: "lower", plugins }));
  const { effects } = await dryRun(node, "add", "lower", path, "--container-id", "c0");
  const [added] = effects.filter(({ kind, action }) => kind === "link" && action === "add");
  expect(added).toMatchObject({ sentence: `add macvlan "eth0" in ${path}`, netns: path });
});

testWith(["ip", "nft", "tc"], "del says what it restores of a device that comes back to the host", async () => {
  using node = newNode();
  using far = createNetns();
  const [container] = node.containers;
  runShellInNetns(
    node.host,
    `ip link add nic0 mtu 1400 type veth peer name far0 netns ${far.path}; ip link set nic0 up`,
  );
  runInNetns(far, "ip", "link", "set", "far0", "up");
  const plugins = [{ type: "host-device", device: "nic0", dataDir: join(node.directory, "devices") }];
  writeFileSync(
    join(node.directory, "net.d/device.conflist"),
    JSON.stringify({ cniVersion: "1.1.0", name: "device", plugins }),
  );
  const words = ["device", container.path, "--container-id", "c0"];
  expect(node.run("add", ...words)).toMatchObject({ exitCode: 0 });
  runShellInNetns(container, "ip link set eth0 mtu 1300");
  const { effects } = await dryRun(node, "del", ...words);
  const links = effects.filter(({ kind }) => kind === "link");
  expect(links.map(({ sentence }) => sentence)).toEqual([
    `change link "eth0" in ${container.path}: down`,
    `change link "eth0" in ${container.path}: name=nic0`,
    `move link "eth0" from ${container.path} to host, as "nic0"`,
    'change link "nic0" in host: mtu=1400',
    'change link "nic0" in host: up',
    'change link "nic0" in host: alias=""',
  ]);
  const { linkChanges } = changesOf(node, "del", ...words);
  expect(links.flatMap(({ details = [] }) => details.map(withoutDescriptor))).toEqual(linkChanges);
});

testWith(
  ["ip", "nft", "tc"],
  "another program's plugin is not run, and a command that would fail says so",
  async () => {
    using node = newNode();
    attach(node);
    mkdirSync(join(node.directory, "bin"));
    const program = join(node.directory, "bin/tuning");
    writeFileSync(program, `#!/bin/sh\necho ran >>${node.directory}/ran\n`);
    chmodSync(program, 0o755);
    const netns = node.containers[0].path;
    const { effects } = await dryRun(node, "del", "dry", netns, "--container-id", "c0");
    expect(effects.filter(({ kind }) => kind === "program").map(({ sentence }) => sentence)).toEqual([
      expect.stringContaining(
        `run ${program} with CNI_COMMAND=DEL CNI_CONTAINERID=c0 CNI_NETNS=${netns} CNI_IFNAME=eth0`,
      ),
    ]);
    const words = ["add", "dry", node.containers[1].path, "--container-id", "c9", "--ifname", "net9"];
    const added = node.run(...words, "--dry-run", "--json");
    expect([added.exitCode, existsSync(join(node.directory, "ran"))]).toEqual([1, false]);
    // That ADD is not undone, since nobody knows that it would fail.
    const { effects: ofAdd }: DryRunDocument = JSON.parse(added.stdout);
    expect(ofAdd.flatMap(({ kind, sentence }) => kind === "program" ? /CNI_COMMAND=\w+/.exec(sentence)! : [])).toEqual([
      "CNI_COMMAND=ADD",
    ]);
    expect(ofAdd.map(({ kind }) => kind)).toEqual(expect.arrayContaining(["link", "address"]));

    rmSync(join(node.directory, "bin"), { recursive: true });
    const before = node.snapshot();
    const failed = node.run("gc", "dry", "--valid", "absent", "--dry-run");
    expect(failed).toMatchObject({ exitCode: 2, stdout: "" });
    expect(failed.stderr).toContain('"absent/eth0"');
    expect(node.run("check", "dry", netns, "--dry-run").exitCode).toBe(2);
    expect(node.snapshot()).toBe(before);
  },
);

testWith(["ip", "nft", "tc"], "network rm removes what it named with --dry-run, and nothing before", async () => {
  using node = newNode();
  attach(node);
  await settle(node);
  const before = node.snapshot();
  const { exitCode, stdout } = node.cni("network", "rm", "dry", "--force", "--dry-run", "--json");
  expect(exitCode).toBe(0);
  expect(node.snapshot()).toBe(before);
  const found: DryRunDocument = JSON.parse(stdout);
  const links = removedBy(found, "link");
  expect(links).toHaveLength(3);
  expect(links).toContain("dry0");
  expect(linkNames(node.host)).toEqual(expect.arrayContaining(links));
  expect(node.cni("network", "rm", "dry", "--force").exitCode).toBe(0);
  expect(linkNames(node.host)).toEqual(["lo"]);
  const files = removedBy(found, "file");
  expect(files).toContain(join(node.directory, "net.d/dry.conflist"));
  expect(files.filter((path) => existsSync(path))).toEqual([]);
});
