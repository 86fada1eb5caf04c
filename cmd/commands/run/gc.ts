import { nameOfNetnsPath } from "../../../ffi/netns/named.ts";
import { loadPlugins } from "../../../plugins/registry.ts";
import type { NetworkAttachment } from "../../../runtime/attachments.ts";
import { containerIdOfNetns } from "../../../runtime/container_id.ts";
import { containerIdProblem } from "../../../spec/env.ts";
import { IFNAME_OPTION, IGNORED_NETNS_ARGUMENT } from "../../arguments/attachment.ts";
import { DIRECTORY_OPTIONS } from "../../arguments/network.ts";
import {
  ALL_OPTION,
  IGNORE_UNKNOWN_OPTION,
  parseValid,
  refuseUnknownNames,
  refuseValidAndAll,
  VALID_OPTION,
} from "../../arguments/valid.ts";
import {
  DOCUMENT_OPTION,
  DRY_RUN_OPTION,
  DRY_RUN_OPTIONS,
  isNetworkName,
  loadRequested,
  NETWORK_ARGUMENT,
  openRuntime,
  RUNTIME_OPTIONS,
  STDERR,
} from "../../arguments/runtime.ts";
import type { Command } from "../../command.ts";
import type { CliContext } from "../../../program/start.ts";
import { openProgressLine } from "../../output/progress.ts";
import { printGcReport } from "../../output/report.ts";
import type { ParsedOptions } from "../../options.ts";
import { UsageError } from "../../../program/usage_error.ts";

const gc: Command = {
  name: "gc",
  summary: "detach all containers except those that --valid names",
  description: `Name each container to keep with --valid, by its id, its name or the name of its namespace.
Containers that were attached after the command began stay too. Removed ones are listed on stderr.`,
  arguments: [NETWORK_ARGUMENT, IGNORED_NETNS_ARGUMENT],
  options: [
    VALID_OPTION,
    ALL_OPTION,
    IGNORE_UNKNOWN_OPTION,
    { ...IFNAME_OPTION, help: "interface of a --valid that names none (eth0)" },
    ...DRY_RUN_OPTIONS,
    ...RUNTIME_OPTIONS,
  ],
  examples: [
    { command: "cni run gc default --valid web --valid c1/eth1", about: "detach all but eth0 of web and eth1 of c1" },
  ],
  async run(input, context) {
    const [word = ""] = input.words;
    refuseValidAndAll(input);
    if (!input.has(VALID_OPTION.name) && !input.has(ALL_OPTION.name)) {
      throw new UsageError(
        '"run gc" detaches what is not named: give --valid ID/IFNAME for each attachment to keep, or --all for none',
        isNetworkName(word) ? await suggestCommands(word, input, context) : [],
      );
    }
    using progress = openProgressLine("Detaching", context.env);
    const runtime = openRuntime(input, context, progress.above(STDERR));
    const network = loadRequested(word, input, context);
    const valid = await parseValid(input, runtime, network.name);
    await loadPlugins();
    const collect = () =>
      runtime.gc(network, valid, {
        // The caller made the list before it started this process.
        snapshotTime: context.startTime,
        resolveNames: true,
        ignoreUnknown: input.has(IGNORE_UNKNOWN_OPTION.name),
        progress: progress.report,
      });
    if (input.has(DRY_RUN_OPTION.name)) {
      const { printDryRun } = await import("../../arguments/dry_run.ts");
      return await printDryRun(input, context, () => refuseUnknownNames(collect));
    }
    const removed = refuseUnknownNames(collect);
    if (input.has(DOCUMENT_OPTION.name)) printGcReport(network, removed);
  },
};
export default gc;

// More would be no command to read before it is typed.
const MAX_NAMED = 10;

/** One command keeps what is alive, one nothing. */
async function suggestCommands(network: string, input: ParsedOptions, context: CliContext): Promise<string[]> {
  const { shellCommand } = await import("../../../spec/shell_command.ts");
  const all = openRuntime(input, context).attachments(network);
  const alive = all.filter(({ state }) => state !== "gone");
  const directories = DIRECTORY_OPTIONS.filter(({ name }) => input.has(name))
    .flatMap(({ name }) => [`--${name}`, input.find(name)!]);
  const command = (...words: string[]) => shellCommand(["cni", "run", "gc", network, ...words, ...directories]);
  const ids = new Set(all.map(({ containerId }) => containerId));
  const valid = alive.map((attachment) => `--valid=${shortName(attachment, ids)}/${attachment.ifname}`);
  return [
    ...0 < valid.length && valid.length <= MAX_NAMED ? [`to detach what is gone only: ${command(...valid)}`] : [],
    `to detach ${alive.length === 0 ? "what is gone" : "all"}: ${command("--all")}`,
  ];
}

/** Returns the name of the namespace that the id was made from, if that is clear. */
function shortName({ containerId, netns = "" }: NetworkAttachment, ids: ReadonlySet<string>): string {
  const name = nameOfNetnsPath(netns) ?? "";
  const isClear = containerIdProblem(name) === undefined && !ids.has(name);
  return isClear && containerIdOfNetns(netns) === containerId ? name : containerId;
}
