/** Another build of the program in a cluster that is up. @module */
import { makeOwnImage, OWN_IMAGE } from "./images.ts";
import { clusterEnv, kubectl } from "./kubectl.ts";
import { CONTAINERD_SOCKET } from "./node_programs.ts";
import { runSuccessfully } from "../harness/process.ts";

/** Gives each node the image of what was built last, and has the pods of the DaemonSet made anew. */
export async function replaceProgram(): Promise<void> {
  makeOwnImage(OWN_IMAGE);
  const ctr = ["ctr", "--address", CONTAINERD_SOCKET, "--namespace", "k8s.io"];
  for (const name of (await kubectl(["get", "nodes", "-o", "name"])).match(/(?<=^node\/).*/gm) ?? []) {
    runSuccessfully({
      argv: ["on", name, ...ctr, "images", "import", "--all-platforms", OWN_IMAGE],
      env: clusterEnv(),
    });
  }
  await kubectl(["-n", "kube-system", "rollout", "restart", "daemonset/cni"]);
  console.log(await kubectl(["-n", "kube-system", "rollout", "status", "daemonset/cni", "--timeout=180s"]));
}
