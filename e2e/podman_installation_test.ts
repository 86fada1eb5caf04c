/** podman's networks of before the installation of the Debian package, after it. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { testWith } from "../testing/binary.ts";
import { DPKG_INSTALL, newDebianPackages } from "../testing/debian_package.ts";
import { until } from "../testing/netns.ts";
import { newImage } from "../testing/node.ts";
import { containersConf, storageConf } from "../testing/podman.ts";
import {
  bootMachine,
  canBootSystemd,
  SYSTEMD_MACHINE_PROGRAMS,
  type SystemdMachine,
} from "../testing/systemd_machine.ts";

const PROGRAMS = [
  ...SYSTEMD_MACHINE_PROGRAMS,
  ...["dpkg", "deb-systemd-helper", "cc", "ip", "nft", "iptables", "busybox", "dnsmasq", "podman", "runc"],
  "/usr/lib/cni/dnsname",
];

describe("podman's networks survive the installation", () => {
  const resources = new AsyncDisposableStack();
  let machine: SystemdMachine;
  const canRun = canBootSystemd && PROGRAMS.every((program) => Bun.which(program));
  beforeAll(async () => {
    if (!canRun) return;
    const { directory } = resources.use(newDebianPackages(["0.1.0"]));
    newImage({
      directory,
      run(...command) {
        const { exitCode, stdout, stderr } = Bun.spawnSync(command);
        if (exitCode !== 0) throw new Error(`${command.join(" ")} ended with ${exitCode}: ${stderr}`);
        return stdout.toString();
      },
    });
    // Groups of processes are this machine's.
    writeFileSync(join(directory, "containers.conf"), containersConf("/usr/lib/cni", "pids_limit = 0"));
    writeFileSync(join(directory, "storage.conf"), storageConf("/run/storage"));
    machine = resources.use(
      await bootMachine(directory, "rm -rf /var/lib/cni /usr/sbin/policy-rc.d /var/lib/man-db/auto-update"),
    );
    machine.run("if dpkg -s cni >/dev/null 2>&1; then dpkg --purge cni; fi; ip link set lo up");
    podman("load -q -i /packages/image.tar");
  }, 120_000);
  afterAll(() => resources.disposeAsync());

  /** @returns also what it says on standard error */
  const podman = (words: string): string =>
    machine.run(
      `CONTAINERS_CONF=/packages/containers.conf CONTAINERS_STORAGE_CONF=/packages/storage.conf podman ${words} 2>&1`,
    );
  const start = (name: string, network: string): string => podman(`run -d --name ${name} --network ${network} web:1`);
  const addressOf = (name: string): string => {
    const networks: Record<string, { IPAddress: string }> = JSON.parse(
      podman(`inspect --format '{{json .NetworkSettings.Networks}}' ${name}`),
    );
    return Object.values(networks)[0]!.IPAddress;
  };
  const find = (asker: string, name: string): string =>
    podman(`exec ${asker} /bin/busybox nslookup ${name}.dns.podman || :`);
  const expectFound = (asker: string, name: string) =>
    expect(find(asker, name)).toContain(`Name:\t${name}.dns.podman\nAddress: ${addressOf(name)}\n`);
  const machineTest = (name: string, body: () => void | Promise<void>) =>
    canBootSystemd
      ? testWith(PROGRAMS, name, body, 120_000)
      : test.skip(`${name} (needs control groups of version 2)`, body);

  machineTest("containers of before and of after find each other, and nobody starts a server", async () => {
    podman("network create old");
    start("first", "old");
    await until(() => find("first", "first").includes("Name:"));
    machine.run(`${DPKG_INSTALL} /packages/cni_0.1.0.deb`);
    expect(machine.run("systemctl is-active cni.socket cni.service || :")).toBe("active\ninactive\n");
    expectFound("first", "first");
    expect(start("second", "old")).not.toContain("dnsname");
    for (const [asker, name] of [["first", "second"], ["second", "first"]] as const) {
      await until(() => find(asker, name).includes("Name:"));
      expectFound(asker, name);
    }
    podman(`exec first /bin/busybox ping -c 1 -W 5 ${addressOf("second")}`);
    expect(machine.run("cni run status old 2>&1")).not.toContain("do not resolve");
    // The part heal gives the first container rules beside those of the Go plugins.
    await until(() => !machine.run("cni doctor old --json || :").includes("Check failed"));
  });

  machineTest("a new network has names", async () => {
    podman("network create new");
    for (const name of ["third", "fourth"]) expect(start(name, "new")).not.toContain("dnsname");
    expectFound("third", "fourth");
    expectFound("fourth", "third");
    await until(() => machine.run("systemctl is-active cni.service || :") === "active\n");
  });

  machineTest("the dnsmasq of the Go plugin ends with the last container, and the server takes its place", () => {
    podman("rm -f -t 0 first");
    expectFound("second", "second");
    expect(find("second", "first")).not.toContain("Name:");
    podman("rm -f -t 0 second");
    expect(machine.run("ls /run/containers/cni/dnsname; pgrep -x dnsmasq || :")).toBe("");
    start("first", "old");
    start("second", "old");
    expectFound("first", "second");
    expect(machine.run("ls /run/cni/dnsname")).toMatch(/^old:/m);
    podman("rm -f -t 0 first second");
  });

  machineTest(
    "where no server can be started, containers are attached with a warning, and a later server has them",
    () => {
      machine.run("systemctl disable --now cni.socket; systemctl stop cni.service");
      const warning = 'Names of network "new" do not resolve: no server listens on "/run/cni/dnsname.sock"; ' +
        "start one: systemctl enable --now cni.socket, or cni serve";
      // podman keeps to itself what plugins say after success.
      start("fifth", "new");
      expect(machine.run("ip netns add sixth; cni run add new sixth 2>&1")).toContain(warning);
      expect(machine.run("cni run check new sixth 2>&1")).toContain(warning);
      expect(machine.run("cni run del new sixth 2>&1; ip netns del sixth")).toBe("");
      expect(find("fifth", "third")).not.toContain("Name:");
      expect(machine.run(
        "CNI_COMMAND=STATUS CNI_PATH=/usr/lib/cni /usr/lib/cni/dnsname 2>&1 <<'END'\n" +
          '{"cniVersion":"1.1.0","name":"new","type":"dnsname"}\nEND',
      )).toContain(warning);
      expect(machine.run("cni run status new 2>&1")).toContain(warning);
      const { findings } = JSON.parse(machine.run("cni doctor new --json || :")).networks[0];
      expect(findings).toContainEqual(
        expect.objectContaining({ check: "STATUS", severity: "warning", what: `dnsname: ${warning}` }),
      );
      expect(podman("rm -f -t 0 third")).toContain("third");

      machine.run("systemctl enable --now cni.socket");
      expect(start("third", "new")).not.toContain("dnsname");
      for (const name of ["fifth", "fourth"]) expectFound("third", name);
      podman("rm -f -t 0 -a");
      expect(machine.run("ls /run/cni/dnsname")).not.toContain(".json");
      expect(machine.run("systemctl --failed --no-legend")).toBe("");
    },
  );
});
