/** A network with the subnet of the host's uplink, as all commands see it, and a host whose default route its router announces. */
import { expect } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CNI_UNDER_TEST, finishedProcess, SERVER_ENV, testWith } from "../testing/binary.ts";
import { newNetns, runInNetns, runShellInNetns, until, WITHOUT_DAD } from "../testing/netns.ts";
import { advertiseRouter } from "../testing/router_advertisement.ts";

function newNode(plugin: object, ranges: object[][]) {
  using resources = new DisposableStack();
  const [host, router, container] = [newNetns, newNetns, newNetns].map((create) => resources.use(create())) as [
    ...[ReturnType<typeof newNetns>, ReturnType<typeof newNetns>, ReturnType<typeof newNetns>],
  ];
  runShellInNetns(router, WITHOUT_DAD);
  runShellInNetns(
    host,
    WITHOUT_DAD,
    `ip link set lo up; ip link add eth0 up type veth peer name lan0 netns ${router.path}`,
    "ip addr add 192.168.1.5/24 dev eth0; ip route add default via 192.168.1.1",
  );
  runShellInNetns(router, "ip addr add 192.168.1.1/24 dev lan0; ip link set lan0 up");
  const directory = mkdtempSync(join(tmpdir(), "cni-overlap-"));
  resources.defer(() => rmSync(directory, { recursive: true, force: true }));
  const file = join(directory, "net.d/10-lan.conflist");
  mkdirSync(join(directory, "net.d"));
  const ipam = { type: "host-local", dataDir: join(directory, "ipam"), ranges };
  const write = (keys: object) => {
    const plugins = [{ ...plugin, ipam, ...keys }];
    const versions = { cniVersion: "1.0.0", cniVersions: ["1.0.0", "1.1.0"] };
    writeFileSync(file, JSON.stringify({ ...versions, name: "lan", plugins }));
  };
  write({});
  const env = { PATH: process.env["PATH"], ...SERVER_ENV };
  const options = ["--conf-dir", join(directory, "net.d"), "--plugin-dir", ":"];
  const cni = (words: string, hasCache = true) =>
    host.run(() =>
      finishedProcess(
        Bun.spawnSync(
          [CNI_UNDER_TEST, ...words.split(" "), ...options, ...hasCache ? ["--cache-dir", directory] : []],
          {
            ...{ cwd: directory, env, stdout: "pipe", stderr: "pipe" },
          },
        ),
      )
    );
  const owned = resources.move();
  return { host, router, container, file, write, cni, [Symbol.dispose]: () => owned.dispose() };
}

const SUBNET = 'subnet 192.168.1.0/24 overlaps address 192.168.1.5/24 of the host\'s link "eth0"';

for (const plugin of [{ type: "bridge", bridge: "br-lan", isDefaultGateway: true }, { type: "ptp" }]) {
  testWith(["ip"], `${plugin.type}: all commands agree on a subnet that is the uplink's`, () => {
    using node = newNode(plugin, [[{ subnet: "192.168.1.0/24" }]]);
    const { cni, container, file, write, host } = node;
    const links = () => runInNetns(host, "ip", "-br", "link").match(/^\S+/gm);
    const before = links();
    const add = `run add lan ${container.path}`;
    const verdicts = () => ({
      lint: host.run(() => finishedProcess(Bun.spawnSync([CNI_UNDER_TEST, "lint", file, "--plugin-dir", ":"]))).stdout,
      status: cni("run status lan").stderr,
      dryRun: cni(`${add} --dry-run`).stderr,
      add: cni(add).stderr,
      doctor: cni("doctor lan --look-only").stdout,
    });
    expect(Object.entries(verdicts()).map(([command, said]) => [command, said.includes(SUBNET)])).toEqual([
      ...["lint", "status", "dryRun", "add", "doctor"].map((command) => [command, true]),
    ]);
    expect(links()).toEqual(before);
    write({ allowRouteOverlap: true });
    expect(Object.entries(verdicts()).filter(([, said]) => said.includes("overlaps"))).toEqual([]);
    expect(cni("run list lan").stdout).toContain("lan");
  });
}

testWith(["ip"], "a dry run sees tunnels, and addresses on lo, as an ADD does", () => {
  using node = newNode({ type: "bridge", bridge: "br-lan", isGateway: true }, [[{ subnet: "10.8.0.0/24" }]]);
  const { cni, container, host } = node;
  const dryRun = () => cni(`run add lan ${container.path} --dry-run`);
  runShellInNetns(host, "ip tuntap add wg0 mode tun; ip link set wg0 up; ip addr add 10.8.0.9/24 dev wg0");
  expect(dryRun()).toMatchObject({ exitCode: 0 });
  runShellInNetns(host, "ip addr add 10.8.0.1/32 dev lo");
  expect(dryRun().stderr).toContain('overlaps address 10.8.0.1/32 of the host\'s link "lo"');
  expect(cni(`run add lan ${container.path}`).stderr).toContain(
    'overlaps address 10.8.0.1/32 of the host\'s link "lo"',
  );
});

testWith(["ip"], "the default route that a router announces stays when the first ADD turns forwarding on", async () => {
  using node = newNode({ type: "bridge", bridge: "br-lan", isGateway: true }, [[{ subnet: "fd00:9::/64" }]]);
  const { cni, container, host, router } = node;
  const route = () => runInNetns(host, "ip", "-6", "route", "show", "default").trim();
  runShellInNetns(router, "ip addr add fe80::1/64 dev lan0 nodad");
  runShellInNetns(host, "echo 1 >/proc/sys/net/ipv6/conf/eth0/accept_ra");
  await until(() => {
    advertiseRouter(router, "lan0", "fe80::1", "2001:db8:7::");
    return route() !== "";
  });
  const dry = cni(`run add lan ${container.path} --dry-run --verbose`);
  expect(dry.stdout).toContain("net.ipv6.conf.eth0.accept_ra");
  const { exitCode, stderr } = cni(`run add lan ${container.path}`);
  expect([exitCode, stderr]).toEqual([0, expect.stringContaining("Set net.ipv6.conf.eth0.accept_ra to 2")]);
  expect(route()).toStartWith("default via fe80::1 dev eth0 proto ra");
});
