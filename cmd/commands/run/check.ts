import { findStat } from "../../../ffi/sys/stat.ts";
import type { Runtime } from "../../../runtime/runtime.ts";
import {
  ATTACHMENT_OPTIONS,
  type AttachmentRequest,
  explicitRuntimeArguments,
  NETNS_ARGUMENT,
  OR_CONTAINER,
  parseAttachment,
} from "../../arguments/attachment.ts";
import {
  DOCUMENT_OPTION,
  isNetworkName,
  keepMessages,
  loadAttachedNetwork,
  loadPluginsOf,
  loadRequested,
  NETWORK_ARGUMENT,
  openRuntime,
  RUNTIME_OPTIONS,
} from "../../arguments/runtime.ts";
import type { Command } from "../../command.ts";
import type { CliContext } from "../../../program/start.ts";
import type { ParsedOptions } from "../../options.ts";
import { printAttachmentReport } from "../../output/report.ts";

const check: Command = {
  name: "check",
  summary: "fail unless a container is still attached as it was",
  description: "Also warns if its packets cannot flow, for example without a default route to masquerade to.",
  arguments: [NETWORK_ARGUMENT, {
    ...NETNS_ARGUMENT,
    name: "NETNS|CONTAINER",
    help: `${NETNS_ARGUMENT.help}. ${OR_CONTAINER}`,
  }],
  options: [...ATTACHMENT_OPTIONS, ...RUNTIME_OPTIONS],
  examples: [{
    command: "cni run check default web",
    about: 'ask every plugin whether "web" still has what it set up',
  }],
  async run(input, context) {
    const [word = "", netnsWord] = input.words;
    const sink = keepMessages();
    const runtime = openRuntime(input, context, sink);
    const request = await findRequested(parseAttachment(input, netnsWord, context), runtime, input, context);
    const network = loadAttachedNetwork(word, request, runtime, input, context);
    await loadPluginsOf(network, request, runtime);
    const { containerId, ifname, netns = "" } = request;
    runtime.check(network, { containerId, ifname, netns, ...explicitRuntimeArguments(network, request) });
    if (input.has(DOCUMENT_OPTION.name)) printAttachmentReport(network, request, sink);
  },
};
export default check;

/** Without a namespace, the word may be what an engine calls the container. */
async function findRequested(
  request: AttachmentRequest,
  runtime: Runtime,
  input: ParsedOptions,
  context: CliContext,
): Promise<AttachmentRequest> {
  if (request.netns !== undefined && findStat(request.netns)) return request;
  const [word = ""] = input.words;
  const network = isNetworkName(word) ? word : loadRequested(word, input, context).name;
  const { resolveEngineName } = await import("../../arguments/engine_container.ts");
  return resolveEngineName(request, network, runtime, input);
}
