import { findStat } from "../../ffi/sys/stat.ts";
import { createFile } from "../../ffi/sys/atomic_file.ts";
import { printStdout } from "../../ffi/sys/stdio.ts";
import type { DoctorReport } from "../../inspect/doctor/doctor.ts";
import type { CheckFinding } from "../../inspect/doctor/examine.ts";
import { EngineNames } from "../../containers/engine_names.ts";
import type { UnusableFile } from "../../inspect/doctor/networks_to_examine.ts";
import { withoutLoopbacks } from "../../networks/loopbacks.ts";
import type { NetworkConfigList } from "../../spec/network_config_list.ts";
import { findContainerOrThrow } from "../../containers/find_container.ts";
import { stringifyJson } from "../../spec/jsonc.ts";
import { NETNS_ARGUMENT, OR_CONTAINER } from "../arguments/attachment.ts";
import { namedAttachments, netnsOrContainer } from "../arguments/engine_container.ts";
import { absolutePath } from "../arguments/path.ts";
import {
  confDirectory,
  JSON_OPTION,
  loadRequested,
  log,
  NETWORK_ARGUMENT,
  openRuntime,
  RUNTIME_OPTIONS,
  runtimeOptions,
} from "../arguments/runtime.ts";
import type { Command } from "../command.ts";
import type { CliContext } from "../../program/start.ts";
import { loadDocumentedBuiltins } from "../documented_builtins.ts";
import type { ParsedOptions } from "../options.ts";
import { UsageError } from "../../program/usage_error.ts";
import { confirm } from "../output/confirm.ts";
import { formatDocument } from "../output/document.ts";
import { formatDoctorReport, formatRepairOutcome } from "../output/findings.ts";
import { openProgressLine } from "../output/progress.ts";
import { openScreen } from "../output/screen.ts";
import { programVersion } from "../../program/version.ts";

const FIX = "fix";
const YES = "yes";
const BUNDLE = "bundle";
const LOOK_ONLY = "look-only";

const doctor: Command = {
  name: "doctor",
  summary: "find out why traffic of containers does not flow",
  description:
    `Looks at links, addresses, routes, kernel parameters, rules, ports and what is left behind. If all is well
so far, it tries connections. A line with ✗ names what the configuration asks for and does not get; then the exit
status is 1. A line with ! is worth knowing. Lines below say what mends it; -> is a command to copy. Without NETWORK, every network
is examined.`,
  arguments: [
    {
      name: "NETWORK|CONTAINER",
      help: `${NETWORK_ARGUMENT.help}. ${OR_CONTAINER}`,
      optional: true,
    },
    { name: "NETNS|CONTAINER", help: `${NETNS_ARGUMENT.help}. ${OR_CONTAINER}`, optional: true },
  ],
  options: [
    { name: FIX, help: "do what is harmless, after asking" },
    { name: YES, short: "y", help: "with --fix: do not ask, and leave what can cut off a remote login" },
    { name: LOOK_ONLY, help: "send no packets" },
    { name: BUNDLE, value: "PATH", help: "write everything that a bug report needs to a file" },
    ...RUNTIME_OPTIONS.filter(({ name }) => name !== JSON_OPTION.name),
    { ...JSON_OPTION, help: `print JSON, as with --format json; ${JSON_OPTION.help}` },
  ],
  examples: [
    { command: "cni doctor", about: "examine every network and container" },
    { command: "cni doctor web", about: 'examine the networks of the container "web"' },
    { command: "cni doctor default web --fix", about: 'examine "web" on the built-in network, and mend it' },
  ],
  async run(input, context) {
    const hasJson = input.has(JSON_OPTION.name);
    if (input.has(YES) && !input.has(FIX)) throw new UsageError('--yes belongs to --fix: "cni doctor --fix --yes"');
    if (hasJson && input.has(FIX) && !input.has(YES)) throw new UsageError("--fix asks: with --json, add --yes");
    const options = runtimeOptions(input, context);
    const bundlePath = input.find(BUNDLE);
    // Before the examination, which takes a while.
    if (bundlePath !== undefined && findStat(absolutePath(bundlePath, context))) throw bundleExists(bundlePath);
    const { repairAll, runDoctor } = await import("../../inspect/doctor/doctor.ts");
    const { listNetworksToExamine } = await import("../../inspect/doctor/networks_to_examine.ts");
    const names = new EngineNames();
    const { networks, netns } = findTarget(
      input,
      context,
      names,
      () => listNetworksToExamine(options, confDirectory(input, context)),
    );
    await loadDocumentedBuiltins();
    using progress = openProgressLine("Examining", context.env);
    const examine = () =>
      runDoctor(options, networks, {
        netnsPath: netns,
        names,
        looksOnly: input.has(LOOK_ONLY),
        onProgress: (done, total) => progress.report(done, total),
      });
    const report: DoctorReport = input.has(FIX)
      ? repairAll(options, examine, input.has(YES) ? ({ mayDisconnect }) => !mayDisconnect : ask)
      : examine();
    for (const outcome of report.repairs ?? []) log(formatRepairOutcome(outcome));
    if (bundlePath !== undefined) {
      const { collectBundle } = await import("../../inspect/doctor/bundle.ts");
      const bundle = collectBundle(options, networks, report, `cni ${programVersion()}`);
      if (!createFile(absolutePath(bundlePath, context), `${stringifyJson(bundle, 4)}\n`)) {
        throw bundleExists(bundlePath);
      }
      log(`Wrote "${bundlePath}": it holds addresses and configurations, so read it before you share it`);
    }
    printStdout(
      hasJson ? formatDocument(report) : formatDoctorReport(report, openScreen(1, context.env)),
    );
    return report.broken > 0 ? 1 : 0;
  },
};
export default doctor;

interface Target {
  readonly networks: readonly (NetworkConfigList | UnusableFile)[];
  readonly netns?: string;
}

function findTarget(
  input: ParsedOptions,
  context: CliContext,
  engineNames: EngineNames,
  listAll: () => Target["networks"],
): Target {
  const [networkWord, netnsWord] = input.words;
  if (networkWord === undefined) return { networks: listAll() };
  const attachments = namedAttachments(openRuntime(input, context), undefined, engineNames);
  try {
    const networks = [loadRequested(networkWord, input, context)];
    return netnsWord === undefined
      ? { networks }
      : { networks, netns: netnsOrContainer(netnsWord, attachments, context) };
  } catch (error) {
    if (netnsWord !== undefined) throw error;
    const found = withoutLoopbacks(findContainerOrThrow(networkWord, attachments(), error));
    const netns = found.find(({ netns }) => netns !== undefined)?.netns;
    if (netns === undefined) throw error;
    const names = found.map(({ network }) => network);
    return { networks: listAll().filter((network) => "name" in network && names.includes(network.name)), netns };
  }
}

const bundleExists = (path: string): RangeError =>
  new RangeError(`Cannot write "${path}": it exists already, so choose another name`);

function ask({ what, mend, mayDisconnect }: CheckFinding): boolean {
  log(mayDisconnect ? `${what}; careful: the change can cut off a remote login` : what);
  const answer = confirm(`cni: Run "${mend ?? what}"?`);
  if (answer !== undefined) return answer;
  throw new UsageError("--fix asks before it changes anything: without a terminal, give --yes");
}
