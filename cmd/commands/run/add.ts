import { blockSignals, stopReportingSignals } from "../../../ffi/sys/signals.ts";
import { printStdout } from "../../../ffi/sys/stdio.ts";
import { throwIfSignalled } from "../../../plugins/lib/protocol/signal.ts";
import type { AddRuntimeConf } from "../../../runtime/add.ts";
import type { Runtime } from "../../../runtime/runtime.ts";
import { CniError } from "../../../spec/error.ts";
import type { NetworkConfigList } from "../../../spec/network_config_list.ts";
import { type Result, stringifyResult } from "../../../spec/result.ts";
import {
  ATTACHMENT_OPTIONS,
  type AttachmentRequest,
  NETNS_ARGUMENT,
  parseAttachment,
  runtimeArguments,
} from "../../arguments/attachment.ts";
import {
  DRY_RUN_OPTION,
  DRY_RUN_OPTIONS,
  loadPluginsOf,
  loadRequested,
  log,
  NETWORK_ARGUMENT,
  openRuntime,
  RUNTIME_OPTIONS,
} from "../../arguments/runtime.ts";
import type { Command } from "../../command.ts";
import type { CliContext } from "../../../program/start.ts";
import { printMessage } from "../../output/message.ts";
import { openScreen, type Screen } from "../../output/screen.ts";

const add: Command = {
  name: "add",
  summary: "attach a container and print the result",
  description:
    "First removes an attachment of the same name whose namespace is gone. If a plugin fails, everything is undone.",
  arguments: [NETWORK_ARGUMENT, NETNS_ARGUMENT],
  options: [...ATTACHMENT_OPTIONS, ...DRY_RUN_OPTIONS, ...RUNTIME_OPTIONS],
  examples: [
    {
      command: "cni netns add web && cni run add default web -p 8080:80",
      about: 'attach the namespace "web" to the built-in network, and publish its port 80 as port 8080 of the host',
    },
  ],
  async run(input, context) {
    const [word = "", netnsWord] = input.words;
    const request = parseAttachment(input, netnsWord, context);
    const runtime = openRuntime(input, context);
    // Before any thread starts: threads inherit blocked signals.
    blockSignals();
    const network = loadRequested(word, input, context, true);
    await loadPluginsOf(network, request, runtime);
    const { containerId, ifname, netns = "" } = request;
    const parameters = { containerId, ifname, netns, ...runtimeArguments(network, request) };
    if (input.has(DRY_RUN_OPTION.name)) {
      const { printDryRunOfAdd } = await import("../../arguments/dry_run.ts");
      return await printDryRunOfAdd(input, context, runtime, network, parameters);
    }
    const result = addOrLogUnread(runtime, network, parameters, request);
    try {
      throwIfSignalled();
      printStdout(`${stringifyResult(result, network.cniVersion)}\n`);
    } catch (error) {
      // The caller does not know of the attachment, and would never remove it.
      stopReportingSignals();
      runtime.del(network, { containerId, ifname });
      throw error;
    }
    logUnread(runtime, network, request);
    const screen = openScreen(2, context.env);
    if (screen.isTerminal) await printSummary(screen, { network, request, result, parameters, context });
  },
};
export default add;

interface Added {
  readonly network: NetworkConfigList;
  readonly request: AttachmentRequest;
  readonly result: Result;
  readonly parameters: AddRuntimeConf;
  readonly context: CliContext;
}

/** The container is attached, whatever happens here. */
async function printSummary(screen: Screen, { network, request, result, parameters, context }: Added): Promise<void> {
  const milliseconds = Date.now() - Number(context.startTime / 1_000_000n);
  const { summarizeAttachment } = await import("../../../inspect/attachment_summary.ts");
  const { formatSummary } = await import("../../output/summary.ts");
  try {
    const summary = summarizeAttachment(network, request, result, parameters.capabilityArgs ?? {});
    printMessage(formatSummary(summary, milliseconds, screen));
  } catch (error) {
    log(`Cannot summarize: ${CniError.from(error).message}`);
  }
}

/** Unread keys may be the reason of a failure. */
function addOrLogUnread(
  runtime: Runtime,
  network: NetworkConfigList,
  parameters: AddRuntimeConf,
  request: AttachmentRequest,
): Result {
  try {
    return runtime.add(network, parameters);
  } catch (error) {
    logUnread(runtime, network, request);
    throw error;
  }
}

function logUnread(runtime: Runtime, network: NetworkConfigList, { capabilityArgs = {} }: AttachmentRequest): void {
  for (const message of runtime.unknownKeys(network)) log(message);
  for (const message of runtime.unknownCapabilities(network, capabilityArgs)) log(message);
}
