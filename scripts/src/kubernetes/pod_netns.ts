/** The namespaces of pods, found by their processes: on the machine, or among those of a cluster. @module */
import { type Netns, openNetns } from "../../../ffi/netns/netns.ts";
import { readProc } from "./holder.ts";

/** Its program `agnhost` is that of the pods here, and of Kubernetes' own tests. */
export const AGNHOST_IMAGE = "registry.k8s.io/e2e-test-images/agnhost:2.56";

const PATIENCE_MS = 60_000;
const ASK_PAUSE_MS = 5;

/** The namespace of a pod, as soon as its process runs. @param listProcesses lists all of its cluster */
export async function untilPodRuns(name: string, listProcesses: () => readonly number[]): Promise<Netns> {
  for (const deadline = performance.now() + PATIENCE_MS; performance.now() < deadline;) {
    const pid = listProcesses().find((each) =>
      readProc(each, "cmdline").startsWith("/agnhost") && readProc(each, "root/etc/hostname").trim() === name
    );
    if (pid !== undefined) return openNetns(`/proc/${pid}/ns/net`);
    await Bun.sleep(ASK_PAUSE_MS);
  }
  throw new Error(`${name} does not run`);
}
