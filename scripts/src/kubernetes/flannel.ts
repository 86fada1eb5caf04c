/** Flannel, another network of a cluster: to compare with, and to migrate from. @module */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { REFERENCE_DIRECTORY } from "../../../testing/reference_host.ts";
import { makeDirectoryOnce, REPOSITORY_ROOT } from "../repository.ts";
import { ADMIN_KUBECONFIG, inCluster, KUBERNETES_CACHE } from "./directory.ts";
import { allProcesses, runsProgram } from "./holder.ts";
import { untilTrue } from "./kubectl.ts";
import { keepRunning, type KubernetesNode, runOnNode, stopKeeping } from "./nodes.ts";
import { runGo } from "./programs.ts";

const MODULE = join(REPOSITORY_ROOT, "testdata/kubernetes/flannel");
const PROGRAM = "flanneld";
const PIN = Bun.hash.wyhash(readFileSync(join(MODULE, "go.sum"), "utf8")).toString(36);

/** Builds it if it is not there. @returns the path of the program */
export function ensureFlannel(): string {
  const directory = makeDirectoryOnce(join(KUBERNETES_CACHE, `flannel-${PIN}`), (scratch) => {
    console.log(`Building flannel in ${KUBERNETES_CACHE} (once, about 4 minutes on two cores)`);
    // A backend of it is in C.
    const words = ["build", "-ldflags", "-s -w", "-o", join(scratch, "made", PROGRAM), "github.com/flannel-io/flannel"];
    runGo(MODULE, words, { CGO_ENABLED: "1" });
    return join(scratch, "made");
  });
  return join(directory, PROGRAM);
}

/** @param podRanges those of the cluster, separated by commas */
export async function startFlannel(nodes: readonly KubernetesNode[], podRanges: string): Promise<void> {
  const program = ensureFlannel();
  const settings = inCluster("config/flannel.json");
  mkdirSync(inCluster("config"), { recursive: true });
  writeFileSync(settings, JSON.stringify(flannelSettings(podRanges.split(","))));
  for (const node of nodes) {
    const words = [
      "-kube-subnet-mgr",
      "-ip-masq",
      `-kubeconfig-file=${ADMIN_KUBECONFIG}`,
      `-net-config-path=${settings}`,
    ];
    void keepRunning(node, { name: PROGRAM, argv: ["env", `NODE_NAME=${node.plan.name}`, program, ...words] });
  }
  await Promise.all(nodes.map(addFlannelNetwork));
}

/** Ends it as the deletion of its DaemonSet does: what it has in the kernel stays. */
export async function stopFlannel(nodes: readonly string[]): Promise<void> {
  for (const node of nodes) stopKeeping(node, PROGRAM);
  const list = () => allProcesses().filter((pid) => runsProgram(pid, PROGRAM));
  for (const pid of list()) process.kill(pid, "SIGTERM");
  await untilTrue("The end of flannel", () => Promise.resolve(list().length === 0));
}

/** As ours: a direct route where the other node is on the link. */
const flannelSettings = (ranges: readonly string[]): object => ({
  EnableIPv4: ranges.some((range) => !range.includes(":")),
  EnableIPv6: ranges.some((range) => range.includes(":")),
  Network: ranges.find((range) => !range.includes(":")),
  IPv6Network: ranges.find((range) => range.includes(":")),
  Backend: { Type: "vxlan", DirectRouting: true },
});

/** What flannel's own plugin does, which has no public module: it calls `bridge` with what flannel has left in a file. */
async function addFlannelNetwork(node: KubernetesNode): Promise<void> {
  const plugins = ["bridge", "host-local", "loopback", "portmap"].map((name) => join(REFERENCE_DIRECTORY, name));
  runOnNode(node, "cp", ...plugins, "/opt/cni/bin/");
  let lease = "";
  await untilTrue(`Flannel's lease of ${node.plan.name}`, () => {
    lease = runOnNode(node, "sh", "-c", "cat /run/flannel/subnet.env 2>/dev/null || :");
    return Promise.resolve(lease !== "");
  });
  const value = (name: string): string | undefined => new RegExp(`^FLANNEL_${name}=(.*)$`, "m").exec(lease)?.[1];
  const subnets = [value("SUBNET"), value("IPV6_SUBNET")].filter((subnet) => subnet !== undefined);
  const networks = [value("NETWORK"), value("IPV6_NETWORK")].filter((network) => network !== undefined);
  const bridge = {
    type: "bridge",
    bridge: "cni0",
    mtu: Number(value("MTU")),
    hairpinMode: true,
    isDefaultGateway: true,
    ipMasq: false,
    ipam: {
      type: "host-local",
      ranges: subnets.map((subnet) => [{ subnet: networkOf(subnet) }]),
      routes: networks.map((dst) => ({ dst })),
    },
  };
  const portmap = { type: "portmap", capabilities: { portMappings: true } };
  const network = { cniVersion: "1.0.0", name: "cbr0", plugins: [bridge, portmap] };
  const file = "/etc/cni/net.d/10-flannel.conflist";
  runOnNode(node, "sh", "-c", `printf %s "$1" >${file}`, "sh", JSON.stringify(network));
}

/** The lease names the gateway: 10.244.1.1/24, fd44:0:0:1::1/64. */
const networkOf = (subnet: string): string =>
  subnet.includes(":") ? subnet.replace("::1/", "::/") : subnet.replace(/\.1\//, ".0/");
