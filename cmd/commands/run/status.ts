/** `cni run status` @module */
import { loadPlugins, pluginsMentionedIn } from "../../../plugins/registry.ts";
import { Runtime } from "../../../runtime/runtime.ts";
import { NETNS } from "../../arguments/attachment.ts";
import { loadRequested, log, NETWORK, RUNTIME_OPTIONS, runtimeOptions } from "../../arguments/runtime.ts";
import type { Command } from "../../command.ts";

const status: Command = {
  name: "status",
  summary: "fail if no container could be attached",
  description: "Names keys of the configuration that are likely to be misspelt.",
  arguments: [NETWORK, { ...NETNS, optional: true, help: "is taken as cnitool takes it, and ignored" }],
  options: RUNTIME_OPTIONS,
  examples: [{ command: "cni run status default", about: "ask the plugins of the built-in network" }],
  async run(input, context) {
    const [word = ""] = input.words;
    const runtime = new Runtime(runtimeOptions(input, context));
    const network = loadRequested(word, input, context);
    await loadPlugins(pluginsMentionedIn(network.text));
    // What is likely to be a mistake is said first: it may be why the answer is no.
    for (const message of runtime.unknownKeys(network)) log(message);
    runtime.status(network);
  },
};
export default status;
