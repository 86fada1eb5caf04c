/** Whatever a kill interrupts, the next DEL gives the device back. */
import { expect } from "bun:test";
import { existsSync, readdirSync } from "node:fs";
import { useDirectory } from "../../testing/directory.ts";
import { pluginLink, testWith } from "../../testing/binary.ts";
import { type Namespaces, newNamespaces, runInNetns } from "../../testing/netns.ts";
import { straced } from "../../testing/strace.ts";

const directory = useDirectory("cni-test-");

const MAC = "0a:00:00:00:00:11";
/** All that changes something. */
const CHANGES = "sendto,linkat,renameat,rename,unlink,unshare";

/** Calls the plugin, killed at one of its changes. @returns its exit status, none if it was killed */
function call({ host, container }: Namespaces, command: string, killedAt?: number): number | null {
  const inject = killedAt === undefined
    ? []
    : straced("/dev/null", `trace=${CHANGES}`, `inject=${CHANGES}:signal=KILL:when=${killedAt}`);
  const config = { cniVersion: "1.0.0", name: "net", type: "host-device", device: "nic0", dataDir: directory };
  const { exitCode } = host.run(() =>
    Bun.spawnSync([...inject, pluginLink("host-device")], {
      cwd: "/",
      env: {
        PATH: "/usr/bin:/bin",
        CNI_COMMAND: command,
        CNI_CONTAINERID: "c1",
        CNI_NETNS: container.path,
        CNI_IFNAME: "net1",
        CNI_PATH: "/nonexistent",
      },
      stdin: Buffer.from(JSON.stringify(config)),
      stderr: "ignore",
    })
  );
  return exitCode;
}

/** A container may have an interface of the device's name, which makes the way back a longer one. */
function prepare({ host, container }: Namespaces, hasNamesake: boolean): void {
  runInNetns(host, ..."ip link add nic0 type veth peer name far0".split(" "));
  runInNetns(host, ..."ip link set nic0 up address 0a:00:00:00:00:11 alias uplink".split(" "));
  if (hasNamesake) runInNetns(container, ..."ip link add nic0 type veth peer name other".split(" "));
}

function expectHome({ host }: Namespaces, what: string): void {
  const [{ address, flags, ifalias }] = JSON.parse(runInNetns(host, "ip", "-j", "link", "show", "nic0"));
  expect([what, address, flags.includes("UP"), ifalias]).toEqual([what, MAC, true, "uplink"]);
  expect([what, existsSync(directory) ? readdirSync(directory) : []]).toEqual([what, []]);
}

/** Kills one command at each of its changes. @returns at how many */
function killEverywhere(command: "ADD" | "DEL", hasNamesake: boolean): number {
  for (let at = 1;; at++) {
    using namespaces = newNamespaces();
    prepare(namespaces, hasNamesake);
    if (command === "DEL") expect(call(namespaces, "ADD")).toBe(0);
    const status = call(namespaces, command, at);
    expect(call(namespaces, "DEL")).toBe(0);
    expectHome(namespaces, `${command} killed at change ${at}`);
    if (status === 0) return at - 1;
  }
}

for (const hasNamesake of [false, true]) {
  for (const command of ["ADD", "DEL"] as const) {
    const where = hasNamesake ? ", where the container has an interface of its name" : "";
    testWith(["strace", "ip"], `DEL gives a device back after a killed ${command}${where}`, () => {
      expect(killEverywhere(command, hasNamesake)).toBeGreaterThan(4);
    });
  }
}
