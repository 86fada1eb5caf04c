import { loadPlugins, pluginsMentionedIn } from "../../../plugins/registry.ts";
import { IGNORED_NETNS_ARGUMENT } from "../../arguments/attachment.ts";
import {
  DOCUMENT_OPTION,
  keepMessages,
  loadRequested,
  NETWORK_ARGUMENT,
  openRuntime,
  RUNTIME_OPTIONS,
} from "../../arguments/runtime.ts";
import type { Command } from "../../command.ts";
import { printNetworkReport } from "../../output/report.ts";

const status: Command = {
  name: "status",
  summary: "fail unless containers can be attached",
  description:
    `Also names keys of the configuration that nobody reads, except "$schema" and keys that begin with "x-" or "_".
Warns if packets of containers could not flow, for example without a default route to masquerade to.`,
  arguments: [NETWORK_ARGUMENT, IGNORED_NETNS_ARGUMENT],
  options: RUNTIME_OPTIONS,
  examples: [{ command: "cni run status default", about: "ask the plugins of the built-in network" }],
  async run(input, context) {
    const [word = ""] = input.words;
    const sink = keepMessages();
    const runtime = openRuntime(input, context, sink);
    const network = loadRequested(word, input, context, true, sink);
    await loadPlugins(pluginsMentionedIn(network.text));
    // First: unread keys may be the reason of a failure.
    for (const message of runtime.unknownKeys(network)) sink.log(message);
    runtime.status(network);
    if (input.has(DOCUMENT_OPTION.name)) printNetworkReport(network, sink);
  },
};
export default status;
