/** On a node of Kubernetes: without a parameter of bridges, pods do not reach all Services. */
import { expect, test } from "bun:test";
import { existsSync } from "node:fs";

const PARAMETERS = "/proc/sys/net/bridge";
const bridgeTest = test.skipIf(!existsSync(`${PARAMETERS}/bridge-nf-call-iptables`));

const SCRIPT = `
  import { prepareBridgedServices } from "${import.meta.dir}/bridged_services.ts";
  try {
    prepareBridgedServices({ path: "/etc/cni/net.d/10-pods.conflist", text: process.argv[1] })();
  } catch ({ message, details }) {
    console.log(message, details);
    process.exit(1);
  }`;

/** @param node lines of the shell that make the node what it is @returns what was said, and the parameters behind it */
function prepare(node: string, type = "bridge") {
  const ipam = { type: "host-local", ranges: ["10.244.3.0/24", "fd00:244::/64"].map((subnet) => [{ subnet }]) };
  const text = JSON.stringify({ cniVersion: "1.0.0", name: "pods", plugins: [{ type, ipam }] });
  const shell = `${node}\n"$@" || exit\n[ ! -e ${PARAMETERS} ] || cat ${PARAMETERS}/bridge-nf-call-ip*tables`;
  const command = ["unshare", "-n", "-m", "sh", "-c", shell, "sh", process.execPath, "-e", SCRIPT, text];
  const { exitCode, stdout, stderr } = Bun.spawnSync(command, { stdin: "ignore" });
  expect(stderr.toString()).toBe("");
  return { exitCode, output: stdout.toString() };
}

const OFF = `for each in ${PARAMETERS}/bridge-nf-call-ip*tables; do echo 0 >$each; done`;
const READ_ONLY = "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys";
const WITHOUT_MODULE = "mount -t tmpfs none /proc/sys/net/bridge";

bridgeTest("the parameters are set for the network of a bridge", () => {
  expect(prepare(OFF)).toEqual({ exitCode: 0, output: "1\n1\n" });
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
])("where the parameter %s, it is refused, with what to do", (_, node, problem, advice) => {
  const { exitCode, output } = prepare(node);
  expect(exitCode).toBe(1);
  expect(output).toContain(
    `the node ${problem}, so pods would not reach Services whose endpoint is on their own node`,
  );
  expect(output).toContain(advice);
});

bridgeTest("without need, nothing is asked for", () => {
  expect(prepare(READ_ONLY)).toMatchObject({ exitCode: 0 });
  expect(prepare(`${OFF}\n${READ_ONLY}`, "ptp")).toMatchObject({ exitCode: 0, output: "0\n0\n" });
});
