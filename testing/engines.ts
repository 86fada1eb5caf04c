/**
 * podman and containerd on one node, with the same links, the same network and the same state.
 *
 * @module
 */
import { afterAll, beforeAll } from "bun:test";
import { type Containerd, CONTAINERD_PROGRAMS, newContainerd } from "./containerd.ts";
import { addPodmanNetwork, newImage, newTestNode, type TestNode } from "./node.ts";
import { newPodman, type Podman, PODMAN_PROGRAMS } from "./podman.ts";

/** Programs that tests of both need. */
export const ENGINE_PROGRAMS: readonly string[] = [...new Set([...PODMAN_PROGRAMS, ...CONTAINERD_PROGRAMS])];

/** Both engines; there while tests run, where the programs are. */
export interface Engines {
  readonly node: TestNode;
  readonly podman: Podman;
  readonly containerd: Containerd;
}

/** Has both started before the tests of the `describe` that this is called in, and ended after them. */
export function useEngines(): Engines {
  const resources = new DisposableStack();
  const started: Partial<{ -readonly [K in keyof Engines]: Engines[K] }> = {};
  beforeAll(async () => {
    if (!ENGINE_PROGRAMS.every((program) => Bun.which(program))) return;
    const node = started.node = resources.use(await newTestNode());
    addPodmanNetwork(node);
    const image = newImage(node);
    started.podman = resources.use(newPodman(node, image));
    started.containerd = resources.use(await newContainerd(node, image));
  });
  afterAll(() => resources.dispose());
  return started as Engines;
}
