import { loadPlugins, pluginsMentionedIn } from "../../../plugins/registry.ts";
import { IGNORED_NETNS_ARGUMENT } from "../../arguments/attachment.ts";
import { loadRequested, log, NETWORK_ARGUMENT, openRuntime, RUNTIME_OPTIONS } from "../../arguments/runtime.ts";
import type { Command } from "../../command.ts";

const status: Command = {
  name: "status",
  summary: "fail unless containers can be attached",
  description:
    `Also names keys of the configuration that nobody reads, except "$schema" and keys that begin with "x-" or "_",
and warns if packets of containers could not flow, for example without a default route to masquerade to.`,
  arguments: [NETWORK_ARGUMENT, IGNORED_NETNS_ARGUMENT],
  options: RUNTIME_OPTIONS,
  examples: [{ command: "cni run status default", about: "ask the plugins of the built-in network" }],
  async run(input, context) {
    const [word = ""] = input.words;
    const runtime = openRuntime(input, context);
    const network = loadRequested(word, input, context, true);
    await loadPlugins(pluginsMentionedIn(network.text));
    // First: unread keys may be the reason of a failure.
    for (const message of runtime.unknownKeys(network)) log(message);
    runtime.status(network);
  },
};
export default status;
