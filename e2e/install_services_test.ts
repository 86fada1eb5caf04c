/** `cni install` on a node of Kubernetes: without a parameter of bridges, pods do not reach all Services. */
import { beforeEach, expect, test } from "bun:test";
import { existsSync, mkdtempSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { useDirectory } from "../testing/directory.ts";
import { CNI_PROGRAM, ENGINE_ENV, finishedProcess } from "../testing/binary.ts";

const root = useDirectory("cni-install-services-");
let home = "";
beforeEach(() => void (home = mkdtempSync(join(root, "node-"))));

const PARAMETERS = "/proc/sys/net/bridge";
const PARAMETER = `${PARAMETERS}/bridge-nf-call-iptables`;
const bridgeTest = test.skipIf(!existsSync(PARAMETER));

/** @param node lines of the shell that make the node what it is @returns what it printed, and the parameter's value behind it */
function install(node: string, words: readonly string[], type = "bridge") {
  const conflist = join(home, "10-pods.conflist");
  const ipam = { type: "host-local", ranges: ["10.244.3.0/24", "fd00:244::/64"].map((subnet) => [{ subnet }]) };
  writeFileSync(conflist, JSON.stringify({ cniVersion: "1.0.0", name: "pods", plugins: [{ type, ipam }] }));
  const command = [CNI_PROGRAM, "install", "--conflist", conflist, "--conf-dir", join(home, "net.d"), ...words];
  const shell = `${node}\n"$@" || exit\n[ ! -e ${PARAMETER} ] || cat ${PARAMETERS}/bridge-nf-call-ip*tables`;
  return finishedProcess(
    Bun.spawnSync(["unshare", "-n", "-m", "sh", "-c", shell, "sh", ...command, join(home, "bin")], {
      ...{ env: ENGINE_ENV, stdin: "ignore", stdout: "pipe", stderr: "pipe" } as const,
    }),
  );
}

const OFF = `for each in ${PARAMETERS}/bridge-nf-call-ip*tables; do echo 0 >$each; done`;
const READ_ONLY = "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys";
const WITHOUT_MODULE = "mount -t tmpfs none /proc/sys/net/bridge";
const ON_NODE = ["--node", "node-1"];
const isInstalled = () => existsSync(join(home, "bin")) || existsSync(join(home, "net.d"));

bridgeTest("the parameter is set with the network of a bridge", () => {
  expect(install(OFF, ON_NODE)).toMatchObject({ exitCode: 0, stdout: expect.stringMatching(/\n1\n1\n$/) });
  expect(isInstalled()).toBe(true);
});

const [IPV4, IPV6] = ["net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables"];

bridgeTest.each([
  [
    "cannot be set",
    `${OFF}\n${READ_ONLY}`,
    `has ${IPV4} = 0 and ${IPV6} = 0, which cannot be set here`,
    `on the node, set it, also for the next boot: sysctl -w ${IPV4}=1 ${IPV6}=1 | tee /etc/sysctl.d/99-cni.conf`,
  ],
  [
    "is missing",
    WITHOUT_MODULE,
    `has no ${IPV4} and no ${IPV6}`,
    "on the node, load the module: echo br_netfilter >/etc/modules-load.d/br_netfilter.conf; modprobe br_netfilter",
  ],
])("where the parameter %s, nothing is installed", (_, node, problem, [advice]) => {
  const { exitCode, stderr } = install(node, ON_NODE);
  expect(exitCode).not.toBe(0);
  expect(stderr.replaceAll(/\s+/g, " ")).toContain(
    `the node ${problem}, so pods would not reach Services whose endpoint is on their own node`,
  );
  expect(stderr.replaceAll(/\s+/g, " ")).toContain(advice);
  expect(isInstalled()).toBe(false);
});

bridgeTest("without need, nothing is asked for", () => {
  expect(install(READ_ONLY, ON_NODE)).toMatchObject({ exitCode: 0 });
  expect(install(`${OFF}\n${READ_ONLY}`, ON_NODE, "ptp")).toMatchObject({ exitCode: 0 });
  expect(install(`${OFF}\n${READ_ONLY}`, [])).toMatchObject({ exitCode: 0 });
});
