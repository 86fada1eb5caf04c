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

/** Files that import what calls the binary, and yet have no call for a server. */
const NEVER_SERVED: Readonly<Record<string, string>> = {
  "cmd/commands/install_dry_run_test.ts": "calls no plugin",
  "cmd/completion/shells_test.ts": "runs the command line from its sources",
  "cmd/man/pages_test.ts": "makes pages in its own process",
  "cmd/man/roff_test.ts": "calls groff alone",
  "cmd/output/show/formats_test.ts": "calls no plugin",
  "plugins/dhcp/daemon_test.ts": "starts servers of leases alone",
  "e2e/budget_test.ts": "counts what a process of its own costs",
  "e2e/conformance/configuration_test.ts": "calls plugins in its own process",
  "e2e/conformance/conventions_test.ts": "calls plugins in its own process",
  "e2e/conformance/conversion_test.ts": "calls plugins in its own process",
  "e2e/conformance/derivation_test.ts": "calls plugins in its own process",
  "e2e/conformance/examples_test.ts": "calls plugins in its own process",
  "e2e/conformance/hostile_del_test.ts": "calls plugins in its own process",
  "e2e/conformance/result_test.ts": "calls plugins in its own process",
  "e2e/conformance/versions_test.ts": "calls plugins in its own process",
  "e2e/debian_test.ts": "installs a program of its own",
  "e2e/deploy_test.ts": "starts servers in containers of a pod",
  "e2e/distroless_test.ts": "has a root of its own, without shims",
  "e2e/engine_directories_test.ts": "calls lint and doctor alone",
  "e2e/host_engines_test.ts": "has a root of its own, without shims",
  "e2e/host_servers_test.ts": "has servers of its own",
  "e2e/hosts_test.ts": "has roots and servers of its own",
  "e2e/reattach_test.ts": "runs the command line from its sources",
  "e2e/readme_test.ts": "has a host of its own, without shims",
  "e2e/restricted_host_test.ts": "has a root of its own, without shims",
  "e2e/sysctl_reads_test.ts": "traces a process of its own",
  "e2e/systemd_machine_test.ts": "has a server of its own",
  "e2e/takeover_test.ts": "runs the command line from its sources",
  "e2e/upgrade_test.ts": "has a server of its own",
  "plugins/dhcp/server/wire_test.ts": "kills a process of its own",
  "plugins/firewall/firewalld_test.ts": "calls plugins in its own process",
  "plugins/host_device/crash_test.ts": "kills a process of its own",
  "plugins/host_local/lock_fairness_test.ts": "has more calls wait for a lock than a server has workers",
  "scripts/src/build/start_code_test.ts": "runs what comes before the program",
  "scripts/src/leases/main_test.ts": "starts plugins of the full program, whose server of leases it kills",
  "scripts/src/new-plugin/main_test.ts": "builds another program",
};

/** The server refuses their callers, which have mounts of their own: these do their calls themselves. */
const REFUSED: readonly string[] = ["e2e/reboot_test.ts"];

const CALLER_IMPORT =
  /from "[./]*testing\/(binary|conformance|connectivity|containerd|engines|minimal_root|node|podman|reference_host)\.ts"/;

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
