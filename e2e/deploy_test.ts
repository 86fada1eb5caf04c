/** The manifests on a node: podman runs their containers as a kubelet does, containerd's CRI plugin starts pods. */
import { afterAll, beforeAll, describe, expect } from "bun:test";
import type { IDaemonSet } from "kubernetes-models/apps/v1/DaemonSet";
import type { IConfigMap } from "kubernetes-models/v1/ConfigMap";
import type { IProbe } from "kubernetes-models/v1/Probe";
import { chownSync, existsSync, lstatSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CONFINED } from "../server/confine.ts";
import { findPart } from "../server/part_definitions.ts";
import { pluginNames } from "../plugins/registry.ts";
import { buildRootFilesystem } from "../scripts/src/image/main.ts";
import { ApiServer } from "../testing/api_server.ts";
import { CNI_PROGRAM, testWith } from "../testing/binary.ts";
import { type Cri, CRI_PROGRAMS, newCri } from "../testing/cri.ts";
import { type Cluster, startContainer } from "../testing/kubelet.ts";
import { renderManifests } from "../testing/manifests.ts";
import { until } from "../testing/netns.ts";
import { cleanNodeState, newImage, newTestNode, nodeState, type TestNode } from "../testing/node.ts";
import { newPodman, PODMAN_PROGRAMS } from "../testing/podman.ts";
import { requestTcp, serveTcp } from "../testing/traffic.ts";

const PROGRAMS = [...CRI_PROGRAMS, ...PODMAN_PROGRAMS, "openssl", "ldd"];
const NODE_NAME = "node-1";
const TOKEN = "the-token-of-the-service-account";
const NODE_ADDRESS = "192.0.2.1";

const manifests = renderManifests("deploy");
const daemonSetOf = (directory: string) =>
  renderManifests(directory).find(({ kind }) => kind === "DaemonSet") as IDaemonSet;
const POD = daemonSetOf("deploy").spec!.template.spec!;
const UNINSTALL_POD = daemonSetOf("deploy/uninstall").spec!.template.spec!;

describe("the DaemonSet", () => {
  const resources = new DisposableStack();
  let node: TestNode;
  let cluster: Cluster;
  let cri: Cri;
  beforeAll(async () => {
    if (!PROGRAMS.every((program) => Bun.which(program))) return;
    node = resources.use(await newTestNode({ isServed: false, hasOwnProcesses: true }));
    node.run(CNI_PROGRAM, "uninstall", "/opt/cni/bin");
    const image = newImage(node);
    resources.use(newPodman(node, image));
    cluster = newCluster(node, resources);
    cri = resources.use(await newCri(node, undefined, image));
  });
  afterAll(() => resources.dispose());

  testWith(PROGRAMS, "serves pods, is upgraded under them, and leaves nothing when it is removed", async () => {
    putOtherPlugins(node);
    const before = contentsOf(node.bin);
    expect(await cri.networkProblem()).toContain("cni plugin not initialized");

    node.run("ip", "route", "add", "default", "via", "192.0.2.2");
    await install(cluster);
    expect(networkFiles(node)).toEqual([]);
    await refuseHostWithoutLoader(cluster);
    let server = await startServer(cluster);
    expect(installedNetwork(node)).toMatchObject({
      mtu: 1450,
      ipam: {
        ranges: [[{ subnet: "10.244.3.0/24" }], [{ subnet: "fd44:0:0:3::/64" }]],
        routes: [{ dst: "0.0.0.0/0" }, { dst: "::/0" }],
      },
    });
    await until(async () => await cri.networkProblem() === "");
    expect(node.run("ip", "route", "show", "10.244.4.0/24")).toContain(" dev cni-vxlan ");

    const id = await cri.run({ name: "web", ports: [{ hostPort: 8080, containerPort: 80 }], bandwidth: "8M" });
    using pod = await cri.container(id);
    expect(pod.addresses("eth0")).toEqual(["10.244.3.2/24", "fd44:0:0:3::2/64"]);
    using _server = serveTcp(pod.netns, "web", 80);
    const isReached = async () => await requestTcp(node.outside, NODE_ADDRESS, 8080);
    expect(await isReached()).toBe("web 192.0.2.2");
    // ptp, host-local in it, portmap, bandwidth, firewall: each ADD is one call.
    expect(servedCalls(node)).toBeGreaterThanOrEqual(4);
    expect(capabilitiesOf(node, "metrics")).toBe(capabilityMask(findPart("metrics").rights!.capabilities));
    expect(metricsOf(node)).toMatch(/^cni_calls_total\{.*program="ptp".*\} [1-9]/m);

    const program = join(node.bin, "cni-full");
    const old = statSync(program).ino;
    node.run("podman", "stop", "serve");
    expect(await server.exited).toBe(0);
    expect(await isReached()).toBe("web 192.0.2.2");
    await refuseBrokenNetwork(cluster);
    // Between two servers, shims do their calls themselves.
    const second = await cri.run({ name: "second" });
    const third = await cri.run({ name: "third" });
    const isHeld = () => JSON.stringify(nodeState(node)).includes("10.244.3.4");
    expect(isHeld()).toBe(true);
    await cri.stop(third);
    await cri.remove(third);
    expect(isHeld()).toBe(false);
    cluster.rootFilesystem = newRootFilesystem(node, "upgraded");
    await install(cluster);
    expect(statSync(program).ino).not.toBe(old);
    server = await startServer(cluster);
    expect(await isReached()).toBe("web 192.0.2.2");

    expect(await failedUninstall(cluster)).toContain(`container "${id}" uses it`);
    expect(existsSync(program)).toBe(true);
    for (const sandbox of [id, second]) {
      await cri.stop(sandbox);
      await cri.remove(sandbox);
    }
    expect(servedCalls(node)).toBeGreaterThanOrEqual(8);
    // A server that has just started may have put back what a pod had, and removes it then.
    await until(() => !JSON.stringify(nodeState(node)).includes("10.244.3.2"));

    node.run("podman", "stop", "serve");
    expect(await server.exited).toBe(0);
    await uninstall(cluster);
    expect(contentsOf(node.bin)).toEqual(before);
    expect(networkFiles(node)).toEqual([]);
    expect(nodeState(node)).toEqual(cleanNodeState());
    await uninstall(cluster);
  }, 120_000);
});

function newCluster(node: TestNode, resources: DisposableStack): Cluster {
  const objects = [
    newNode(NODE_NAME, NODE_ADDRESS, ["10.244.3.0/24", "fd44:0:0:3::/64"]),
    // Behind a router: the tunnel leads there.
    newNode("node-2", "198.51.100.7", ["10.244.4.0/24", "fd44:0:0:4::/64"]),
  ];
  const api = resources.use(
    new ApiServer(node.host, { address: NODE_ADDRESS, token: TOKEN, objects, directory: node.directory }),
  );
  const ownMaps = manifests.filter(({ kind }) => kind === "ConfigMap") as IConfigMap[];
  return {
    ...{ node, nodeName: NODE_NAME, token: TOKEN, rootFilesystem: newRootFilesystem(node, "first") },
    env: { KUBERNETES_SERVICE_HOST: NODE_ADDRESS, KUBERNETES_SERVICE_PORT: `${api.port}` },
    configMaps: {
      "kube-root-ca.crt": { "ca.crt": api.ca },
      ...Object.fromEntries(ownMaps.map(({ metadata, data }) => [metadata!.name!, data!])),
    },
  };
}

const newNode = (name: string, address: string, podCIDRs: readonly string[]) => ({
  apiVersion: "v1",
  kind: "Node" as const,
  metadata: { name },
  spec: { podCIDR: podCIDRs[0]!, podCIDRs },
  status: { addresses: [{ type: "InternalIP", address }] },
});

/** The root of the image; a later one has another copy of the program. */
function newRootFilesystem({ directory }: TestNode, name: string): string {
  const root = join(directory, "roots", name);
  buildRootFilesystem(root);
  return root;
}

/** As Kubernetes' own packages do: in a directory of a user who is not root. */
function putOtherPlugins({ bin }: TestNode): void {
  for (const name of ["bridge", "other"]) writeFileSync(join(bin, name), "#!/bin/false\n", { mode: 0o755 });
  for (const path of [bin, join(bin, "bridge"), join(bin, "other")]) chownSync(path, 1001, 1001);
}

const contentsOf = (directory: string) =>
  Object.fromEntries(
    readdirSync(directory).map((name) => {
      const { uid, mode, size } = lstatSync(join(directory, name));
      return [name, { uid, mode, size }];
    }),
  );

/** podman makes a lock. */
const networkFiles = ({ networks }: TestNode): string[] => readdirSync(networks).filter((name) => name !== "cni.lock");

/** The plugin that makes the interface. */
function installedNetwork(node: TestNode): unknown {
  expect(networkFiles(node)).toEqual(["10-pods.conflist"]);
  return JSON.parse(readFileSync(join(node.networks, "10-pods.conflist"), "utf8")).plugins[0];
}

async function install(cluster: Cluster): Promise<void> {
  expect(await outcomeOf(startContainer(cluster, POD, "install"))).toEqual({ exitCode: 0, errors: "" });
}

/** The node keeps the network that it has. */
async function refuseBrokenNetwork(cluster: Cluster): Promise<void> {
  const { node, configMaps } = cluster;
  const before = readFileSync(join(node.networks, "10-pods.conflist"), "utf8");
  const files = configMaps["cni-network"]!;
  const text = files["10-pods.conflist"]!.replace(`"type": "ptp"`, `"type": "ptp", "mtu": "big"`);
  const broken = { ...cluster, configMaps: { ...configMaps, "cni-network": { "10-pods.conflist": text } } };
  const started = startContainer(broken, POD, "serve");
  await untilWritten(started, "10-pods.conflist:5:29");
  expect(succeeds(node, POD.containers[0]!.readinessProbe!)).toBe(false);
  node.run("podman", "stop", "serve");
  expect(await started.exited).toBe(0);
  expect(readFileSync(join(node.networks, "10-pods.conflist"), "utf8")).toBe(before);
}

/** Engines could not start the plugins. */
async function refuseHostWithoutLoader(cluster: Cluster): Promise<void> {
  const directory = join(cluster.node.bin, "cni-lib");
  const loader = readdirSync(directory).find((name) => name.startsWith("ld-linux"))!;
  writeFileSync(join(directory, loader), "no loader");
  const { exitCode, errors } = await outcomeOf(startContainer(cluster, POD, "serve"));
  const plugin = `/opt/cni/bin/${pluginNames()[0]}`;
  expect([exitCode, errors]).toEqual([
    1,
    `cni: Cannot serve this host: "${plugin}" does not run there: Cannot start: the loader of glibc cannot be mapped\n`,
  ]);
  await install(cluster);
}

/** @returns podman, which ends with the server */
async function startServer(cluster: Cluster): Promise<ReturnType<typeof startContainer>> {
  const started = startContainer(cluster, POD, "serve");
  await untilWritten(started, "Listening");
  const { startupProbe, livenessProbe, readinessProbe } = POD.containers.find(({ name }) => name === "serve")!;
  for (const probe of [startupProbe, livenessProbe]) expect(succeeds(cluster.node, probe!)).toBe(true);
  // The process that answers starts after the workers.
  await until(() => succeeds(cluster.node, readinessProbe!));
  return started;
}

/** As long as a pod uses the network. @returns what it says */
async function failedUninstall(cluster: Cluster): Promise<string> {
  const { exitCode, errors } = await outcomeOf(startContainer(cluster, UNINSTALL_POD, "uninstall"));
  expect(exitCode).toBe(1);
  return errors;
}

async function uninstall(cluster: Cluster): Promise<void> {
  const started = startContainer(cluster, UNINSTALL_POD, "uninstall");
  await untilWritten(started, "Waiting for SIGTERM");
  cluster.node.run("podman", "stop", "uninstall");
  expect(await started.exited).toBe(0);
}

/** Goes on reading, or the container would get SIGPIPE. */
async function untilWritten({ stderr }: ReturnType<typeof startContainer>, text: string): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const read = async () => {
    let errors = "";
    for await (const chunk of stderr) {
      if (console.error(new TextDecoder().decode(chunk)), (errors += new TextDecoder().decode(chunk)).includes(text)) {
        resolve();
      }
    }
    reject(new Error(`It ended without "${text}": ${errors}`));
  };
  read().catch(reject);
  await promise;
}

async function outcomeOf(process: ReturnType<typeof startContainer>) {
  const [errors] = await Promise.all([new Response(process.stderr).text(), new Response(process.stdout).text()]);
  return { exitCode: await process.exited, errors };
}

/** Asks as a kubelet does. */
function succeeds({ run }: TestNode, { exec, httpGet }: IProbe): boolean {
  try {
    if (exec) run("podman", "exec", "serve", ...exec.command!);
    else run("busybox", "wget", "-q", "-O", "-", `http://${httpGet!.host}:${httpGet!.port}${httpGet!.path}`);
    return true;
  } catch {
    return false;
  }
}

const inServer = ({ run }: TestNode, ...words: string[]) =>
  run("podman", "exec", "serve", "/opt/cni/bin/cni", ...words);

const servedCalls = (node: TestNode): number => JSON.parse(inServer(node, "serve", "--status", "--json")).served;

/** Of the process of a part, which the server started. */
function capabilitiesOf({ processes }: TestNode, part: string): string {
  const textOf = (pid: string, file: string) => readFileSync(join(processes, pid, file), "utf8");
  const pid = readdirSync(processes).find((name) => {
    const words = /^\d+$/.test(name) ? textOf(name, "cmdline").split("\0") : [];
    return words.includes(part) && words.includes(CONFINED);
  });
  return /^CapEff:\t(.+)$/m.exec(textOf(pid!, "status"))![1]!;
}

const capabilityMask = (capabilities: readonly number[]): string =>
  capabilities.reduce((mask, capability) => mask | 1 << capability, 0).toString(16).padStart(16, "0");

function metricsOf(node: TestNode): string {
  const address = POD.containers[0]!.command!.find((word) => word.startsWith("--metrics="))!.slice("--metrics=".length);
  return node.run("busybox", "wget", "-q", "-O", "-", `http://${address}/metrics`);
}
