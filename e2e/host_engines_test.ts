/** Engines whose C library is their own, on a host that has none where plugins look for it. */
import { afterAll, beforeAll, describe, expect } from "bun:test";
import { existsSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { testWith } from "../testing/binary.ts";
import { type Cri, CRI_PROGRAMS, newCri, POD_NETWORK } from "../testing/cri.ts";
import { type EngineRoot, newEngineRoot } from "../testing/engine_root.ts";
import { ping } from "../testing/netns.ts";
import { cleanNodeState, newImage, newTestNode, nodeState, type TestNode } from "../testing/node.ts";
import { newPodman, type Podman, PODMAN_PROGRAMS } from "../testing/podman.ts";

const CONTAINERD = ["containerd", "containerd-shim-runc-v2", "ctr"];
const ENGINES = [...CONTAINERD, "podman", "conmon", "runc"];
/** What shows the node's state. */
const INSPECTORS = ["nft", "iptables-save", "ip6tables-save"];
const PROGRAMS = [...new Set([...CRI_PROGRAMS, ...PODMAN_PROGRAMS, ...ENGINES, ...INSPECTORS, "ldd", "chroot"])];
const GATEWAY = "10.94.0.1";

describe("on a host without a C library for plugins", () => {
  const resources = new DisposableStack();
  let root: EngineRoot;
  let node: TestNode;
  let cri: Cri;
  let podman: Podman;
  beforeAll(async () => {
    if (!PROGRAMS.every((program) => Bun.which(program))) return;
    root = resources.use(newEngineRoot([...ENGINES, ...INSPECTORS]));
    node = resources.use(await newTestNode({ root, isServed: false }));
    writeFileSync(join(node.networks, "10-pods.conflist"), JSON.stringify(POD_NETWORK));
    const image = newImage(node);
    cri = resources.use(await newCri(node, undefined, image));
    podman = resources.use(newPodman(node, image));
  });
  afterAll(() => resources.dispose());

  testWith(PROGRAMS, "containerd attaches a pod, and detaches it", async () => {
    for (const path of ["lib", "lib64", "usr"]) expect(existsSync(join(root.path, path))).toBe(false);
    const id = await cri.run({ name: "web", ports: [{ hostPort: 8080, containerPort: 80 }], bandwidth: "8M" });
    {
      using pod = await cri.container(id);
      expect(pod.addresses("eth0")).toEqual(["10.94.0.2/24", "fd94::2/64"]);
      ping(pod.netns, GATEWAY);
    }
    await cri.stop(id);
    await cri.remove(id);
    expect(nodeState(node)).toEqual(cleanNodeState("pods0"));
  });

  testWith(PROGRAMS, "podman attaches a container, and detaches it", () => {
    {
      using container = podman.start("web", "--network", "pods", "-p", "8080:80");
      expect(container.addresses("eth0")).toContainEqual(expect.stringMatching(/^10\.94\.0\.\d+\/24$/));
      expect(podman.podman("exec", "web", "/bin/busybox", "ping", "-c", "1", GATEWAY)).toContain("1 packets received");
    }
    podman.podman("rm", "-f", "-t", "0", "web");
    expect(nodeState(node)).toEqual(cleanNodeState("pods0"));
  });

  testWith(PROGRAMS, "containerd tells why a plugin without its libraries does not start", async () => {
    const [libraries, away] = [join(node.bin, "cni-lib"), join(node.bin, "away")];
    renameSync(libraries, away);
    using cleanup = new DisposableStack();
    cleanup.defer(() => renameSync(away, libraries));
    const message = await cri.run({ name: "other" }).then(() => "", (error) => error.message);
    expect(message).toContain("this host has no glibc, and the directory cni-lib is not beside the program");
  });
});
