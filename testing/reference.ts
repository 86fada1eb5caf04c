/**
 * The reference plugins of the distribution, called in the sandbox of a test as ours are.
 *
 * @module
 */
import { test } from "bun:test";
import { existsSync } from "node:fs";
import { type Namespaces, netnsTest } from "./netns.ts";
import type { CniCommand } from "../spec/version.ts";
import type { Sandbox, SandboxCallOptions } from "./sandbox.ts";

/** The newest version that Debian's reference plugins speak. */
export const REFERENCE_VERSION = "1.0.0";

/** A test that needs the reference plugin of this name. */
export const referenceTest = (name: string) => test.skipIf(!existsSync(`/usr/lib/cni/${name}`));

/** A test in namespaces of its own with iptables and nft, which make what the reference has them make. */
export function referenceNetnsTest(name: string, body: (namespaces: Namespaces) => void): void {
  const missing = ["iptables", "ip6tables", "nft"].filter((program) => Bun.which(program) === null);
  if (missing.length === 0) netnsTest(name, body);
  else test.skip(`${name} # needs ${missing.join(", ")}`, () => {});
}

/** Its answer: a result, `{}` for none, or "refused". */
export type ReferenceAnswer = Readonly<Record<string, unknown>> | "refused";

/** Calls a reference plugin in a sandbox, as Sandbox.call calls ours. @param wrapper a command that ends by executing its arguments */
export function callReference(
  { host, container }: Sandbox,
  name: string,
  verb: CniCommand,
  config: object,
  { containerId = "c1", ifname = "eth0", netns = container, env = {} }: SandboxCallOptions = {},
  wrapper: readonly string[] = [],
): ReferenceAnswer {
  const document = { cniVersion: REFERENCE_VERSION, name: "test", type: name, ...config };
  const { exitCode, stdout } = host.run(() =>
    Bun.spawnSync([...wrapper, `/usr/lib/cni/${name}`], {
      env: {
        PATH: "/usr/sbin:/usr/bin:/sbin:/bin",
        CNI_COMMAND: verb,
        CNI_CONTAINERID: containerId,
        CNI_IFNAME: ifname,
        CNI_NETNS: typeof netns === "string" ? netns : netns?.path ?? "",
        CNI_PATH: "/usr/lib/cni",
        ...env,
      },
      stdin: new TextEncoder().encode(JSON.stringify(document)),
    })
  );
  if (exitCode !== 0) return "refused";
  const { cniVersion: _, dns, ...result } = `${stdout}` === "" ? {} : JSON.parse(`${stdout}`);
  // Later releases leave an empty one out, too.
  return Object.keys(dns ?? {}).length === 0 ? result : { dns, ...result };
}
