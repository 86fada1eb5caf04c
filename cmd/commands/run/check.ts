/** `cni run check` @module */
import { loadPlugins } from "../../../plugins/registry.ts";
import { Runtime } from "../../../runtime/runtime.ts";
import { ATTACHMENT_OPTIONS, givenRuntimeArguments, NETNS, parseAttachment } from "../../arguments/attachment.ts";
import { loadAttachedNetwork, NETWORK, RUNTIME_OPTIONS, runtimeOptions } from "../../arguments/runtime.ts";
import type { Command } from "../../command.ts";

const check: Command = {
  name: "check",
  summary: "fail unless a container is still attached as it was",
  arguments: [NETWORK, NETNS],
  options: [...ATTACHMENT_OPTIONS, ...RUNTIME_OPTIONS],
  examples: [{
    command: "cni run check default web",
    about: 'ask every plugin whether "web" still has what it set up',
  }],
  async run(input, context) {
    const [word = "", netnsWord] = input.words;
    const request = parseAttachment(input, netnsWord, context);
    const runtime = new Runtime(runtimeOptions(input, context));
    const network = loadAttachedNetwork(word, request, runtime, input, context);
    await loadPlugins();
    const { containerId, ifname, netns = "" } = request;
    runtime.check(network, { containerId, ifname, netns, ...givenRuntimeArguments(network, request) });
  },
};
export default check;
