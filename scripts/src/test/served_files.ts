/** Test files that run a second time with a server, which takes their calls of the compiled binary. @module */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../repository.ts";

/** In each test run, with these variables. All others run by `scripts/test --server`. */
export const SERVED_SAMPLE: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "e2e/conformance/bad_input_test.ts": { TEST_PLUGINS: "bridge" },
  "e2e/conformance/delegation_test.ts": {},
  "e2e/conformance/errors_test.ts": {},
  "e2e/conformance/execution_test.ts": {},
  "e2e/containerd_test.ts": {},
  "e2e/engine_calls_test.ts": {},
  "e2e/interruption_test.ts": {},
  "plugins/bandwidth/reference_test.ts": {},
};

/** Files that import what calls shims, and yet have no call for a server. */
const NEVER_SERVED: Readonly<Record<string, string>> = {
  "cmd/commands/install_dry_run_test.ts": "calls no plugin",
  "e2e/conformance/configuration_test.ts": "calls plugins in its own process",
  "e2e/conformance/conventions_test.ts": "calls plugins in its own process",
  "e2e/conformance/conversion_test.ts": "calls plugins in its own process",
  "e2e/conformance/examples_test.ts": "calls plugins in its own process",
  "e2e/conformance/hostile_del_test.ts": "calls plugins in its own process",
  "e2e/conformance/result_test.ts": "calls plugins in its own process",
  "e2e/conformance/versions_test.ts": "calls plugins in its own process",
  "e2e/deploy_test.ts": "starts servers in containers of a pod",
  "e2e/distroless_test.ts": "has a root of its own, without shims",
  "e2e/engine_directories_test.ts": "calls lint and doctor alone",
  "e2e/host_engines_test.ts": "has a root of its own, without shims",
  "e2e/image_test.ts": "calls a program of an image",
  "e2e/podman_names_test.ts": "has a server of its own",
  "e2e/restricted_host_test.ts": "has a root of its own, without shims",
  "plugins/dnsname/silent_server_test.ts": "calls plugins in a process of its own",
  "plugins/host_device/crash_test.ts": "kills a process of its own",
  "plugins/host_local/lock_fairness_test.ts": "has more calls wait for a lock than a server has workers",
};

/** The server refuses their callers, which have mounts of their own: these do their calls themselves. */
const REFUSED: readonly string[] = ["e2e/reboot_test.ts"];

/** What calls shims where the runner has started a server. */
const CALLER_IMPORT = new RegExp(
  `import {[^}]*\\b(${
    [
      "CNI_UNDER_TEST",
      "pluginLink",
      "runPlugin",
      "new(ConformanceNode|RuntimeSandbox|ConnectivityHost|Containerd|MinimalRoot|TestNode|Podman|ComparisonHost)",
      "use(Podman|PodmanAsShipped|Containerd|Cri|Engines)",
      "ourPlugins",
    ].join("|")
  })\\b[^}]*} from "[./]*testing/`,
);

/** Whether a test file calls the compiled binary in a way that a server can serve. */
export function isServed(path: string): boolean {
  if (path in NEVER_SERVED || /^e2e\/serve\/|_vm_test\.ts$/.test(path)) return false;
  return CALLER_IMPORT.test(readFileSync(join(REPOSITORY_ROOT, path), "utf8"));
}

/** What `cni serve --status` said of all servers of a file in the end. */
export interface ServedCalls {
  readonly served: number;
  readonly refused: number;
}

/** Whether the calls of a file went to its servers. */
export const areServed = (path: string, { served, refused }: ServedCalls): boolean =>
  (REFUSED.includes(path) ? refused : served) > 0;
