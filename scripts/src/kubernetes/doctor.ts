/** What `cni doctor` says of a node. @module */
import { runInBackground } from "../harness/process.ts";
import { clusterEnv } from "./kubectl.ts";

/** What it says after a cross. */
export async function doctorFailures(node: string): Promise<readonly string[]> {
  const argv = ["on", node, "/opt/cni/bin/cni", "doctor", "--json"];
  const { stdout, stderr } = await runInBackground({ argv, env: clusterEnv() });
  if (!stdout.startsWith("{")) return [`It ended early: ${stdout}${stderr}`];
  const { networks } = JSON.parse(stdout) as {
    readonly networks: readonly {
      readonly network: string;
      readonly findings: readonly { readonly severity: string; readonly what: string }[];
    }[];
  };
  return networks.flatMap(({ network, findings }) =>
    findings.filter(({ severity }) => severity === "broken").map(({ what }) => `${network}: ${what}`)
  );
}
