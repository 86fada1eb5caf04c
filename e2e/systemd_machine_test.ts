/** The Debian package on a machine whose process 1 is systemd: its units, with all that they forbid, under real use. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chmodSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../scripts/src/repository.ts";
import { testWith } from "../testing/binary.ts";
import { DPKG_INSTALL, newDebianPackages } from "../testing/debian_package.ts";
import { until } from "../testing/netns.ts";
import {
  bootMachine,
  canBootSystemd,
  SYSTEMD_MACHINE_PROGRAMS,
  type SystemdMachine,
} from "../testing/systemd_machine.ts";

/** Limits of `systemd-analyze security`, in tenths: what docs/install.md says. */
const EXPOSURE = { "cni.service": 73, "cni-restore@.service": 44 };

describe("the exposure of units", () => {
  for (const [unit, limit] of Object.entries(EXPOSURE)) {
    testWith(["systemd-analyze"], `of ${unit} is at most ${limit / 10}`, () => {
      const path = join(REPOSITORY_ROOT, "packaging/debian", unit);
      const words = ["security", "--offline=true", "--no-pager", `--threshold=${limit}`, path];
      const { exitCode, stdout } = Bun.spawnSync(["systemd-analyze", ...words]);
      expect([exitCode, stdout.toString().trimEnd().split("\n").at(-1)]).toEqual([0, expect.any(String)]);
    });
  }
});

const PROGRAMS = [
  ...SYSTEMD_MACHINE_PROGRAMS,
  "dpkg",
  "deb-systemd-helper",
  "cc",
  "ip",
  "nft",
  "iptables",
  "busybox",
  "dig",
  "dnsmasq",
];

const NETWORKS = {
  lan: [
    {
      type: "bridge",
      bridge: "lan0",
      isGateway: true,
      ipMasq: true,
      ipam: { type: "host-local", subnet: "10.95.0.0/24" },
    },
    { type: "dnsname", domainName: "dns.lan" },
    { type: "tuning", sysctl: { "net.core.somaxconn": "500" } },
    { type: "portmap", capabilities: { portMappings: true } },
    { type: "firewall" },
    { type: "bandwidth", ingressRate: 80_000_000, ingressBurst: 800_000 },
  ],
  leased: [{ type: "bridge", bridge: "leased0", ipam: { type: "dhcp" } }],
  tap: [{ type: "tap" }],
  foreign: [{ type: "bridge", bridge: "foreign0", ipam: { type: "foreign" } }, { type: "foreign" }],
};

/** A plugin that is not built in, which does what such plugins do: programs, tables, mounts, namespaces, modules. */
const FOREIGN_PLUGIN = `#!/bin/sh
set -e
exec 3>&1 1>/run/foreign.log 2>&1
set -x
[ "$CNI_COMMAND" = ADD ] || exit 0
request=$(cat)
ip link add probe0 type veth peer name probe1; tc qdisc add dev probe0 root tbf rate 1mbit burst 10k latency 50ms
ip link del probe0
nft add table ip foreign; nft delete table ip foreign
iptables -t nat -L; iptables-legacy --version
nsenter --net="$CNI_NETNS" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward; ip addr show'
nsenter --net="$CNI_NETNS" busybox arping -c 1 -w 1 -I lo 127.0.0.1 || :
unshare --mount mount -t tmpfs none /mnt
mknod /run/foreign.null c 1 3; rm /run/foreign.null
touch /run/foreign; chown 1000:1000 /run/foreign; chmod 755 /run/foreign; setpriv --reuid 1000 --clear-groups true
sleep 60 & kill $!
# Else no program gets the rights of its file, nor a context of SELinux as tap needs it.
[ "$(setpriv --reuid 1000 --clear-groups /run/setuid_id -u)" = 0 ]
# What no plugin does: the clock, and the block device 8:0.
if date --set @0; then exit 1; fi
if mknod /run/foreign.disk b 8 0; then exit 1; fi
case $request in
  *'"ipam"'*) echo '{"cniVersion":"1.0.0","ips":[{"address":"10.96.0.9/24"}]}' >&3 ;;
  *) echo '{"cniVersion":"1.0.0"}' >&3 ;;
esac
`;

/** Calls of all networks are done by the server. */
const BIN = "/usr/lib/cni";
const call = (verb: string, network: string, container: string, ...words: readonly string[]): string =>
  [`${BIN}/cni run ${verb} ${network} ${container} --conf-dir /packages/net.d`, ...words].join(" ");

describe("on a machine with systemd", () => {
  const resources = new AsyncDisposableStack();
  let machine: SystemdMachine;
  const canRun = canBootSystemd && PROGRAMS.every((program) => Bun.which(program));
  beforeAll(async () => {
    if (!canRun) return;
    const { directory } = resources.use(newDebianPackages(["0.1.0", "0.2.0"]));
    mkdirSync(join(directory, "net.d"));
    for (const [name, plugins] of Object.entries(NETWORKS)) {
      writeFileSync(
        join(directory, "net.d", `${name}.conflist`),
        JSON.stringify({ cniVersion: "1.0.0", name, plugins }),
      );
    }
    writeFileSync(join(directory, "foreign"), FOREIGN_PLUGIN);
    chmodSync(join(directory, "foreign"), 0o755);
    machine = resources.use(
      await bootMachine(directory, "rm -rf /var/lib/cni /usr/sbin/policy-rc.d /var/lib/man-db/auto-update"),
    );
    // As in a root without it.
    machine.run("if dpkg -s cni >/dev/null 2>&1; then dpkg --purge cni; fi");
    machine.run(`${DPKG_INSTALL} /packages/cni_0.1.0.deb; ln -s /packages/foreign ${BIN}/foreign; ip link set lo up`);
    machine.run("ip netns add c1; ip netns add c2; ip netns add outside");
    machine.run("cp /usr/bin/id /run/setuid_id; chmod u+s /run/setuid_id");
  }, 120_000);
  afterAll(() => resources.disposeAsync());

  const served = (): number => JSON.parse(machine.run("cni serve --status --json")).served;
  const hasUnit = (name: string): boolean => existsSync(`/lib/systemd/system/${name}.service`);
  const fetchPublished = (): string =>
    machine.run(`printf 'GET /tap.conflist HTTP/1.0\\r\\n\\r\\n' | busybox nc -w 5 10.95.0.1 8080 || :`);
  const machineTest = (name: string, body: () => void | Promise<void>) =>
    canBootSystemd
      ? testWith(PROGRAMS, name, body, 120_000)
      : test.skip(`${name} (needs control groups of version 2)`, body);

  machineTest("a call starts the server, which then does calls with names", async () => {
    expect(machine.run("systemctl is-enabled cni.socket; systemctl is-active cni.socket")).toBe("enabled\nactive\n");
    expect(machine.run("systemctl is-active cni.service || :")).toBe("inactive\n");
    // It may wait for too long, and do the call itself.
    machine.run(call("add", "lan", "c1", "-p 8080:80"));
    await until(() => machine.run("cni serve --check || :").startsWith("The server"));
    const before = served();
    machine.run(call("add", "lan", "c2"));
    // A busy machine may not serve a call.
    while (served() === before) machine.run(call("check", "lan", "c2"));
    machine.run("ip netns exec c1 busybox ping -c 1 -W 50 10.95.0.3");
    expect(machine.run("ip netns exec c1 dig +short @10.95.0.1 c2.dns.lan")).toBe("10.95.0.3\n");
    machine.run("systemd-run --quiet --unit=web ip netns exec c1 busybox httpd -f -p 80 -h /packages/net.d");
    await until(() => fetchPublished().includes("tap"));
    machine.run(call("check", "lan", "c1"));
  });

  machineTest("its part of DHCP gets a lease", () => {
    machine.run(
      "ip link add leased0 type bridge; ip link set leased0 up; ip link add up0 master leased0 up type veth peer eth0 netns outside",
    );
    machine.run("ip -n outside addr add 10.7.0.1/24 dev eth0; ip -n outside link set eth0 up");
    machine.run(
      "systemd-run --quiet --unit=leases ip netns exec outside dnsmasq -k -C /dev/null --port=0 --user=root --no-ping -F 10.7.0.10,10.7.0.20",
    );
    expect(machine.run(call("add", "leased", "c1", "--ifname lease0"))).toContain("10.7.0.");
    machine.run("ip netns exec c1 busybox ping -c 1 -W 50 -I lease0 10.7.0.1");
  });

  machineTest("it makes a tap device, and runs plugins that are not built in", () => {
    const before = served();
    machine.run(call("add", "tap", "c1", "--ifname tap0"));
    machine.run(
      `${
        call("add", "foreign", "c2", "--ifname foreign9", `--plugin-dir ${BIN}`)
      } || { cat /run/foreign.log; exit 1; }`,
    );
    expect(machine.run("ip -n c2 -4 addr show foreign9")).toContain("10.96.0.9/24");
    const log = machine.run("cat /run/foreign.log");
    for (const refused of ["date: cannot set date", "mknod: /run/foreign.disk"]) {
      expect(log).toContain(`${refused}: Operation not permitted`);
    }
    expect(served()).toBe(before + 2);
  });

  machineTest("rules are back after a firewall was restarted, also without the server", async () => {
    // No directory of ours is there if other programs attached all containers.
    machine.run("systemctl stop cni.socket cni.service; mv /run/cni /run/away");
    const hasRules = () => machine.run("nft list ruleset").includes("8080");
    const isTrusted = () => machine.run("firewall-cmd --zone=trusted --list-sources").includes("10.95.0.2/32");
    // A reload of firewalld is but a signal: nobody knows when it is done.
    const firewalls: [name: string, verbs: string[], isWhole: () => boolean][] = [
      ["nftables", ["restart", "reload"], hasRules],
      ["firewalld", ["restart"], isTrusted],
    ];
    for (const [firewall, verbs, isWhole] of firewalls.filter(([name]) => hasUnit(name))) {
      const untilRestored = () =>
        until(() => machine.run(`systemctl is-active cni-restore@${firewall} || :`) === "active\n");
      machine.run(`systemctl start ${firewall}`);
      await untilRestored();
      for (const verb of verbs) {
        machine.run(`systemctl ${verb} ${firewall}`);
        await until(isWhole);
        await untilRestored();
      }
      await until(() => fetchPublished().includes("tap"));
    }
    machine.run("systemctl stop firewalld nftables || :; rm -rf /run/cni; mv /run/away /run/cni; nft flush ruleset");
    // A new version may have more static rules, and the server is not there to add them.
    machine.run(`${DPKG_INSTALL} /packages/cni_0.1.0.deb`);
    expect(hasRules()).toBe(true);
  });

  machineTest("an upgrade restarts the server under containers, which stay attached", async () => {
    machine.run("systemctl start cni.socket cni.service");
    const pid = () => machine.run("systemctl show -P MainPID cni.service");
    const before = pid();
    machine.run(`${DPKG_INSTALL} /packages/cni_0.2.0.deb`);
    await until(() => machine.run("cni serve --check || :").startsWith("The server"));
    expect(pid()).not.toBe(before);
    machine.run("ip netns exec c1 busybox ping -c 1 -W 50 10.95.0.3");
    machine.run(call("check", "leased", "c1", "--ifname lease0"));
    await until(() => machine.run("ip netns exec c1 dig +short +time=1 @10.95.0.1 c2.dns.lan || :") === "10.95.0.3\n");
  });

  machineTest("it detaches all, and nothing has failed", () => {
    const before = served();
    for (
      const words of [["lan", "c1"], ["lan", "c2"], ["tap", "c1", "--ifname tap0"], ["leased", "c1", "--ifname lease0"]]
    ) {
      machine.run(call("del", words[0]!, words[1]!, ...words.slice(2)));
    }
    expect(served()).toBe(before + 4);
    expect(machine.run("ip -o link show type veth")).not.toContain("lan0");
    expect(machine.run("ls /run/cni/dhcp /run/cni/dnsname")).not.toContain(".json");
    expect(machine.run("systemctl --failed --no-legend")).toBe("");
  });

  machineTest("without containers the server ends, and the next question of a plugin starts it", async () => {
    const start = "ExecStart=\nExecStart=/usr/lib/cni/cni-full serve --idle-timeout 2";
    machine.run("mkdir /run/systemd/system/cni.service.d");
    machine.run(`printf '[Service]\n${start}\n' >/run/systemd/system/cni.service.d/idle.conf; systemctl daemon-reload`);
    machine.run("systemctl restart cni.service");
    const untilEnded = () => until(() => machine.run("systemctl is-active cni.service || :") === "inactive\n");
    await untilEnded();
    const properties = "Result,ExecMainStatus,NRestarts";
    const inOrder = "Result=success\nNRestarts=0\nExecMainStatus=0\n";
    expect(machine.run(`systemctl show -p ${properties} cni.service`)).toBe(inOrder);
    // The server does no part of this call, which asks for names: it waits for the part that answers.
    const call = `${BIN}/cni-full run status lan --conf-dir /packages/net.d`;
    expect(machine.run(`${call} 2>&1`)).not.toContain("do not resolve");
    await until(() => machine.run("systemctl is-active cni.service || :") === "active\n");
    await untilEnded();
    expect(machine.run("systemctl --failed --no-legend")).toBe("");
    machine.run("rm -r /run/systemd/system/cni.service.d");
    machine.run("dpkg --purge cni");
    expect(machine.run("systemctl is-active cni.service cni.socket || :")).toBe(
      "inactive\n".repeat(2),
    );
  });
});
