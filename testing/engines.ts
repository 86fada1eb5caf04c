/**
 * Container engines on one node, which are there while the tests of a `describe` run.
 *
 * @module
 */
import { afterAll, beforeAll } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Containerd, CONTAINERD_PROGRAMS, newContainerd } from "./containerd.ts";
import { type Cri, CRI_PROGRAMS, newCri, POD_NETWORK } from "./cri.ts";
import { addPodmanNetwork, newImage, newTestNode, type TestNode } from "./node.ts";
import { newPodman, type Podman, PODMAN_PROGRAMS } from "./podman.ts";

/** Programs that tests of podman and containerd need. */
export const ENGINE_PROGRAMS: readonly string[] = [...new Set([...PODMAN_PROGRAMS, ...CONTAINERD_PROGRAMS])];

/** A node; there while tests run, where the programs are. */
export interface UsedNode {
  readonly node: TestNode;
}

export interface UsedPodman extends UsedNode {
  readonly podman: Podman;
}

export interface UsedContainerd extends UsedNode {
  readonly containerd: Containerd;
}

/** containerd's CRI on a node. */
export interface UsedCri extends UsedNode {
  readonly cri: Cri;
}

/** Both engines, with the same links, the same network and the same state. */
export type Engines = UsedPodman & UsedContainerd;

/** A list of plugins, as a node's file has it. */
export interface NodeNetwork {
  readonly cniVersion: string;
  readonly name: string;
  readonly plugins: readonly object[];
}

/** podman, and a network beside its own if there is one. */
export function usePodman(network?: NodeNetwork): UsedPodman {
  return useOnNode(PODMAN_PROGRAMS, (node, resources) => {
    if (network) writeNetwork(node, network);
    return { podman: resources.use(newPodman(node)) };
  });
}

/** podman with the network that it ships. */
export function usePodmanAsShipped(): UsedPodman {
  return useOnNode(PODMAN_PROGRAMS, (node, resources) => {
    addPodmanNetwork(node);
    return { podman: resources.use(newPodman(node)) };
  });
}

export function useContainerd(network: NodeNetwork): UsedContainerd {
  return useOnNode(CONTAINERD_PROGRAMS, async (node, resources) => {
    writeNetwork(node, network);
    return { containerd: resources.use(await newContainerd(node)) };
  });
}

/** containerd's CRI with a network for its pods. */
export function useCri(network: NodeNetwork = POD_NETWORK): UsedCri {
  return useOnNode(CRI_PROGRAMS, async (node, resources) => {
    writeNetwork(node, network);
    return { cri: resources.use(await newCri(node)) };
  });
}

/** podman and containerd with the network that podman ships. */
export function useEngines(): Engines {
  return useOnNode(ENGINE_PROGRAMS, async (node, resources) => {
    addPodmanNetwork(node);
    const image = newImage(node);
    const podman = resources.use(newPodman(node, image));
    return { podman, containerd: resources.use(await newContainerd(node, image)) };
  });
}

/** Has a node and its engines started before the tests of the `describe` that this is called in, and ended after them. */
function useOnNode<Started extends object>(
  programs: readonly string[],
  start: (node: TestNode, resources: DisposableStack) => Started | Promise<Started>,
): Started & UsedNode {
  const resources = new DisposableStack();
  const used = {};
  beforeAll(async () => {
    if (!programs.every((program) => Bun.which(program))) return;
    const node = resources.use(await newTestNode());
    Object.assign(used, { node }, await start(node, resources));
  });
  afterAll(() => resources.dispose());
  return used as Started & UsedNode;
}

/** The engines take the first by its file's name. */
function writeNetwork({ networks }: TestNode, network: NodeNetwork): void {
  writeFileSync(join(networks, `${network.name}.conflist`), JSON.stringify(network));
}
