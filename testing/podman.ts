/**
 * podman 4 with its CNI backend, on a node of the test.
 *
 * @module
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { newImage, NODE_PROGRAMS, type RunningContainer, runningContainer, type TestNode } from "./node.ts";

/** Programs that its tests need. */
export const PODMAN_PROGRAMS = [...NODE_PROGRAMS, "podman", "runc"];

/** A network with published ports. */
export const PODMAN_NETWORK = {
  cniVersion: "0.4.0",
  name: "podtest",
  plugins: [
    {
      type: "bridge",
      bridge: "podtest0",
      isGateway: true,
      ipMasq: true,
      ipam: { type: "host-local", routes: [{ dst: "0.0.0.0/0" }], ranges: [[{ subnet: "10.91.0.0/24" }]] },
    },
    { type: "portmap", capabilities: { portMappings: true } },
  ],
};

/** containers.conf(5) with the CNI backend. @param containers further lines of its section `containers` */
export const containersConf = (pluginDirectory: string, ...containers: readonly string[]): string => `
[containers]
default_ulimits = ["nofile=20000:20000","nproc=4096:4096"]
${containers.join("\n")}
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "cni"
cni_plugin_dirs = ["${pluginDirectory}"]
`;

/** containers-storage.conf(5) with images and layers in a directory. */
export const storageConf = (directory: string): string =>
  `[storage]\ndriver = "vfs"\ngraphroot = "${directory}"\nrunroot = "/run/containers/storage"\n`;

/** podman, whose containers are removed when it is disposed of. */
export interface Podman extends Disposable {
  /** Runs podman. @throws {Error} with what it said, if it fails */
  podman(...words: string[]): string;
  /** `podman run -d` with the options, in an image that sleeps. */
  start(name: string, ...options: string[]): RunningContainer;
  /** The container of this name, which runs already. */
  container(name: string): RunningContainer;
}

/** Sets up podman on a node, with the image `web:1`. */
export function newPodman(node: TestNode, image = newImage(node)): Podman {
  const directory = join(node.directory, "podman");
  mkdirSync(directory);
  const write = (name: string, text: string) => {
    writeFileSync(join(directory, name), text);
    return join(directory, name);
  };
  node.env["CONTAINERS_CONF"] = write("containers.conf", containersConf("/opt/cni/bin"));
  node.env["CONTAINERS_STORAGE_CONF"] = write("storage.conf", storageConf(`${directory}/storage`));
  const run = (...words: string[]) => node.run("podman", ...words);
  const podman = (...words: string[]) => words[0] === "rm" ? removeTwice(run, words) : run(...words);
  const container = (name: string) => {
    const [id, pid] = podman("inspect", "--format", "{{.Id}} {{.State.Pid}}", name).trim().split(" ");
    return runningContainer(node, Number(pid), id!);
  };
  podman("load", "-q", "-i", image);
  return {
    podman,
    container,
    start(name, ...options) {
      podman("run", "-d", "--name", name, ...options, "web:1");
      return container(name);
    },
    [Symbol.dispose]: () => void podman("rm", "-f", "-a", "-t", "0"),
  };
}

/**
 * Where a container has a user namespace, its supervisor's `podman container cleanup` notes its shm as unmounted before it is. A removal
 * that comes meanwhile fails with EBUSY, and keeps the container. The next one finds all unmounted.
 */
function removeTwice(run: Podman["podman"], words: readonly string[]): string {
  try {
    return run(...words);
  } catch {
    return run(...words);
  }
}
