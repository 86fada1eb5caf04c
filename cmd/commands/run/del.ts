import { findStat } from "../../../ffi/sys/stat.ts";
import type { Runtime } from "../../../runtime/runtime.ts";
import type { NetworkConfigList } from "../../../spec/network_config_list.ts";
import {
  ATTACHMENT_OPTIONS,
  type AttachmentRequest,
  NETNS_ARGUMENT,
  parseAttachment,
  runtimeArgumentsForDel,
} from "../../arguments/attachment.ts";
import {
  DOCUMENT_OPTION,
  DRY_RUN_OPTION,
  DRY_RUN_OPTIONS,
  keepMessages,
  loadAttachedNetwork,
  loadPluginsOf,
  type MessageSink,
  NETWORK_ARGUMENT,
  openRuntime,
  RUNTIME_OPTIONS,
} from "../../arguments/runtime.ts";
import type { Command } from "../../command.ts";
import { printAttachmentReport } from "../../output/report.ts";
import { UsageError } from "../../../program/usage_error.ts";

const del: Command = {
  name: "del",
  summary: "detach a container",
  description: "Uses the configuration that it was attached with. Succeeds if the container is already detached.",
  arguments: [NETWORK_ARGUMENT, { ...NETNS_ARGUMENT, optional: true }],
  options: [...ATTACHMENT_OPTIONS, ...DRY_RUN_OPTIONS, ...RUNTIME_OPTIONS],
  examples: [
    { command: "cni run del default web", about: 'detach the namespace "web" from the built-in network' },
    { command: "cni run del default --container-id c1", about: "detach a container whose namespace is not at hand" },
    { command: "cni run del default web --dry-run", about: "see what that would remove" },
  ],
  async run(input, context) {
    const [word = "", netnsWord] = input.words;
    const request = parseAttachment(input, netnsWord, context);
    const { containerId, ifname, netns } = request;
    if (containerId === "") {
      throw new UsageError('"run del" needs a network namespace or --container-id, to know what to remove');
    }
    const sink = keepMessages();
    const runtime = openRuntime(input, context, sink);
    const network = loadAttachedNetwork(word, request, runtime, input, context);
    const name = input.find("container-id") ?? netnsWord;
    if (name !== undefined && (netns === undefined || !findStat(netns))) {
      await logIdsOfName(name, request, network, runtime, sink);
    }
    await loadPluginsOf(network, request, runtime);
    const args = runtimeArgumentsForDel(network, request);
    const detach = () => runtime.del(network, { containerId, ifname, ...(netns !== undefined && { netns }), ...args });
    if (input.has(DRY_RUN_OPTION.name)) {
      const { printDryRun } = await import("../../arguments/dry_run.ts");
      return await printDryRun(input, context, detach);
    }
    detach();
    if (input.has(DOCUMENT_OPTION.name)) printAttachmentReport(network, request, sink);
  },
};
export default del;

async function logIdsOfName(
  name: string,
  request: AttachmentRequest,
  network: NetworkConfigList | string,
  runtime: Runtime,
  { log }: MessageSink,
): Promise<void> {
  const { findIdsOfName } = await import("../../arguments/engine_container.ts");
  for (const id of findIdsOfName(name, request, typeof network === "string" ? network : network.name, runtime)) {
    log(`"${name}" is the name of a container, and DEL goes by the id: --container-id ${id}`);
  }
}
