/**
 * containerd 1 with its client ctr, on a node of the test.
 *
 * @module
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { endCgroups } from "./cgroups.ts";
import { newImage, NODE_PROGRAMS, type RunningContainer, runningContainer, type TestNode } from "./node.ts";

/** Programs that its tests need. */
export const CONTAINERD_PROGRAMS = [...NODE_PROGRAMS, "containerd", "ctr", "runc"];

/** Its own name for a set of containers, by which their cgroups are named as well; ctr puts it before ids. */
const CONTAINERD_NAMESPACE = "cni-test";

/** A container whose `ctr run` waits for its end, and then detaches it. */
export interface AttendedContainer extends RunningContainer {
  /** Kills it and waits for `ctr run`. @returns what that said */
  kill(): Promise<string>;
}

/** containerd, whose containers and cgroups are removed when it is disposed of. It ends with its node. */
export interface Containerd extends Disposable {
  /** Runs ctr. @throws {Error} with what it said, if it fails */
  ctr(...words: string[]): string;
  /** `ctr run --cni`, once the container runs. */
  run(id: string): Promise<AttendedContainer>;
  /** `ctr run --detach --cni` */
  runDetached(id: string): RunningContainer;
}

/** Starts containerd on a node, with the image `web:1`. */
export async function newContainerd(node: TestNode, image = newImage(node)): Promise<Containerd> {
  const directory = join(node.directory, "containerd");
  mkdirSync(directory);
  const config = `version = 2\nroot = "${directory}/root"\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n`;
  writeFileSync(join(directory, "config.toml"), config);
  const daemon = node.start("containerd", "-c", join(directory, "config.toml"));
  await awaitText(daemon.stderr, "containerd successfully booted");
  const ctr = (...words: string[]) => node.run("ctr", "-n", CONTAINERD_NAMESPACE, ...words);
  ctr("image", "import", "--snapshotter", "native", image);
  const options = ["--snapshotter", "native", "--cni", "docker.io/library/web:1"];
  const container = (id: string) => {
    const pid = new RegExp(`^${id} +(\\d+)`, "m").exec(ctr("task", "ls"))?.[1];
    return runningContainer(node, Number(pid), `${CONTAINERD_NAMESPACE}-${id}`);
  };
  return {
    ctr,
    async run(id) {
      const client = node.start("ctr", "-n", CONTAINERD_NAMESPACE, "run", "--rm", ...options, id);
      await awaitText(client.stdout, "ready").catch(async (cause) => {
        throw new Error(`ctr run failed: ${await new Response(client.stderr).text()}`, { cause });
      });
      return {
        ...container(id),
        async kill() {
          ctr("task", "kill", "-s", "KILL", id);
          await client.exited;
          return await new Response(client.stderr).text();
        },
      };
    },
    runDetached(id) {
      ctr("run", "--detach", "--null-io", ...options, id);
      return container(id);
    },
    [Symbol.dispose]() {
      for (const [id] of ctr("task", "ls", "-q").matchAll(/.+/g)) {
        // `ctr run` may do it first.
        try {
          ctr("task", "rm", "-f", id);
        } catch {
          // Then there is nothing to do.
        }
      }
      endCgroups(CONTAINERD_NAMESPACE);
    },
  };
}

/** Waits until a program has written a text, and goes on reading: it would wait for us otherwise. */
async function awaitText(stream: ReadableStream<Uint8Array>, text: string): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const read = async () => {
    let all = "";
    const decoder = new TextDecoder();
    for await (const chunk of stream) {
      all += decoder.decode(chunk, { stream: true });
      if (all.includes(text)) resolve();
    }
    reject(new Error(`It ended without "${text}": ${all}`));
  };
  read().catch(reject);
  await promise;
}
