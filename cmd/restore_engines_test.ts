/** `cni run restore` on a node whose containers podman and containerd started: what their libcni remembers is enough. */
import { afterAll, beforeAll, describe, expect } from "bun:test";
import { askTcp, askUdp, SHORTLY_MS } from "../ffi/testing_traffic.ts";
import { CNI, testWith } from "./testing.ts";
import { type Containerd, CONTAINERD_PROGRAMS, newContainerd } from "./testing_containerd.ts";
import { addPodmansNetwork, newImage, newNode, nothingLeft, serve, type TestNode, tracesOn } from "./testing_node.ts";
import { newPodman, type Podman, PODMAN_PROGRAMS } from "./testing_podman.ts";

const PROGRAMS = [...new Set([...PODMAN_PROGRAMS, ...CONTAINERD_PROGRAMS])];

describe("restoring what engines attached", () => {
  const resources = new DisposableStack();
  let node: TestNode;
  let podman: Podman;
  let containerd: Containerd;
  beforeAll(async () => {
    if (!PROGRAMS.every((program) => Bun.which(program))) return;
    node = resources.use(await newNode());
    addPodmansNetwork(node);
    const image = newImage(node);
    podman = resources.use(newPodman(node, image));
    containerd = resources.use(await newContainerd(node, image));
  });
  afterAll(() => resources.dispose());

  testWith(PROGRAMS, "what a flush interrupts goes on after it, without a container being restarted", async () => {
    const { outside, run } = node;
    using p = podman.start("p", "-p", "8080:80", "-p", "5353:53/udp");
    using c = await containerd.run("c");
    using _p = await serve(p.netns, "p");
    using _outside = await serve(outside, "outside");
    const reached = async (patience?: number) => [
      await askTcp(outside, "192.0.2.1", 8080, patience),
      await askTcp(p.netns, "192.0.2.2", 80, patience),
      await askTcp(c.netns, "192.0.2.2", 80, patience),
    ];
    const all = ["p 192.0.2.2", "outside 192.0.2.1", "outside 192.0.2.1"];
    expect(await reached()).toEqual(all);
    run("nft", "flush", "ruleset");
    expect(await reached(SHORTLY_MS)).toEqual([undefined, undefined, undefined]);
    const { attachments, problems } = JSON.parse(run(CNI, "run", "restore"));
    expect(problems).toEqual([]);
    const stateOf = ({ containerId, state }: { containerId: string; state: string }) => `${containerId} ${state}`;
    expect(attachments.map(stateOf).sort()).toEqual([`${c.id} restored`, `${p.id} restored`].sort());
    expect(await reached()).toEqual(all);
    expect(await askUdp(outside, "192.0.2.1", 5353)).toBe("p 192.0.2.2");
    const before = run("nft", "-a", "-s", "list", "ruleset");
    expect(JSON.parse(run(CNI, "run", "restore", "podman")).attachments.map(stateOf).sort())
      .toEqual([`${c.id} whole`, `${p.id} whole`].sort());
    expect(run("nft", "-a", "-s", "list", "ruleset")).toBe(before);
    podman.podman("rm", "-f", "-t", "0", "p");
    await c.kill();
    expect(tracesOn(node)).toEqual(nothingLeft("cni-podman0"));
  });
});
