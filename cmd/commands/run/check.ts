import { loadPlugins } from "../../../plugins/registry.ts";
import {
  ATTACHMENT_OPTIONS,
  explicitRuntimeArguments,
  NETNS_ARGUMENT,
  parseAttachment,
} from "../../arguments/attachment.ts";
import {
  DOCUMENT_OPTION,
  keepMessages,
  loadAttachedNetwork,
  NETWORK_ARGUMENT,
  openRuntime,
  RUNTIME_OPTIONS,
} from "../../arguments/runtime.ts";
import type { Command } from "../../command.ts";
import { printAttachmentReport } from "../../output/report.ts";

const check: Command = {
  name: "check",
  summary: "fail unless a container is still attached as it was",
  description: "Also warns if its packets cannot flow, for example without a default route to masquerade to.",
  arguments: [NETWORK_ARGUMENT, NETNS_ARGUMENT],
  options: [...ATTACHMENT_OPTIONS, ...RUNTIME_OPTIONS],
  examples: [{
    command: "cni run check default web",
    about: 'ask every plugin whether "web" still has what it set up',
  }],
  async run(input, context) {
    const [word = "", netnsWord] = input.words;
    const request = parseAttachment(input, netnsWord, context);
    const sink = keepMessages();
    const runtime = openRuntime(input, context, sink);
    const network = loadAttachedNetwork(word, request, runtime, input, context);
    await loadPlugins();
    const { containerId, ifname, netns = "" } = request;
    runtime.check(network, { containerId, ifname, netns, ...explicitRuntimeArguments(network, request) });
    if (input.has(DOCUMENT_OPTION.name)) printAttachmentReport(network, request, sink);
  },
};
export default check;
