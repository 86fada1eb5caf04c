/** kubectl with all rights, where the API server can be reached. @module */
import { requireSuccess, runInBackground } from "../harness/process.ts";
import { ADMIN_KUBECONFIG } from "./directory.ts";
import { kubeadmDirectory, programDirectory } from "./programs.ts";

/** The environment of programs that ask the cluster. */
export const clusterEnv = (): Record<string, string> => ({
  HOME: "/root",
  KUBECONFIG: ADMIN_KUBECONFIG,
  PATH: [programDirectory(), kubeadmDirectory(), "/srv/kubernetes/bin", "/usr/sbin:/usr/bin:/sbin:/bin"].join(":"),
  TERM: process.env["TERM"] ?? "dumb",
});

/** @throws {Error} with what kubectl said, if it fails */
export const kubectl = (words: readonly string[], stdin = ""): Promise<string> =>
  runMeanwhile(["kubectl", ...words], stdin);

/** This process goes on meanwhile. @throws {Error} with what the program said, if it fails */
export async function runMeanwhile(argv: readonly string[], stdin = ""): Promise<string> {
  const command = { argv, env: clusterEnv(), stdin };
  return requireSuccess(command, await runInBackground(command)).stdout;
}

const ASK_PAUSE_MS = 200;

/** Asks again and again. @throws {Error} if the answer is no for two minutes */
export async function untilTrue(what: string, ask: () => Promise<boolean>): Promise<void> {
  for (const deadline = performance.now() + 120_000; !await ask();) {
    if (performance.now() > deadline) throw new Error(`${what} took more than two minutes`);
    await Bun.sleep(ASK_PAUSE_MS);
  }
}
