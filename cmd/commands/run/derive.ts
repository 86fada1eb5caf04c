import { printStdout } from "../../../ffi/sys/stdio.ts";
import type { DeriveOptions } from "../../../runtime/derive.ts";
import { parseJson } from "../../../spec/jsonc.ts";
import { formatDocument } from "../../output/document.ts";
import type { NetworkConfigList } from "../../../spec/network_config_list.ts";
import {
  ATTACHMENT_OPTIONS,
  type AttachmentRequest,
  explicitRuntimeArguments,
  NETNS_ARGUMENT,
  parseAttachment,
  runtimeArgumentsForDel,
} from "../../arguments/attachment.ts";
import {
  ALL_OPTION,
  IGNORE_UNKNOWN_OPTION,
  parseValid,
  refuseUnknownNames,
  refuseValidAndAll,
  VALID_OPTION,
} from "../../arguments/valid.ts";
import {
  loadAttachedNetwork,
  loadRequested,
  NETWORK_ARGUMENT,
  openRuntime,
  RUNTIME_OPTIONS,
} from "../../arguments/runtime.ts";
import type { Command } from "../../command.ts";
import type { OptionSpec } from "../../options.ts";
import { UsageError } from "../../../program/usage_error.ts";

const COMMANDS: readonly DeriveOptions["verb"][] = ["ADD", "CHECK", "DEL", "GC", "STATUS"];
const COMMAND_OPTION: OptionSpec = {
  name: "command",
  value: "COMMAND",
  choices: COMMANDS,
  help: "ADD (the default), CHECK, DEL, GC or STATUS",
};

const derive: Command = {
  name: "derive",
  summary: "print the request for each plugin, and call none",
  description: "Requests of an ADD lack the result of the previous plugin.",
  arguments: [NETWORK_ARGUMENT, { ...NETNS_ARGUMENT, optional: true }],
  options: [
    COMMAND_OPTION,
    { ...VALID_OPTION, help: `GC: ${VALID_OPTION.help}` },
    { ...ALL_OPTION, help: `GC: ${ALL_OPTION.help}` },
    { ...IGNORE_UNKNOWN_OPTION, help: `GC: ${IGNORE_UNKNOWN_OPTION.help}` },
    ...ATTACHMENT_OPTIONS,
    ...RUNTIME_OPTIONS,
  ],
  examples: [
    {
      command: "cni run derive default web --command DEL",
      about: "one JSON document, a request for each plugin in the order of the calls",
    },
  ],
  async run(input, context) {
    const [word = "", netnsWord] = input.words;
    const verb = COMMANDS.find((command) => command === input.find(COMMAND_OPTION.name)) ?? "ADD";
    const gcOption = [VALID_OPTION, ALL_OPTION, IGNORE_UNKNOWN_OPTION].find(({ name }) => input.has(name));
    if (verb !== "GC" && gcOption) {
      throw new UsageError(`"--${gcOption.name}" belongs to "run gc", and to "run derive" with --command GC`);
    }
    refuseValidAndAll(input);
    const request = parseAttachment(input, netnsWord, context);
    const runtime = openRuntime(input, context);
    const network = verb === "DEL" || verb === "CHECK"
      ? loadAttachedNetwork(word, request, runtime, input, context)
      : loadRequested(word, input, context);
    const networkName = typeof network === "string" ? network : network.name;
    const valid = await parseValid(input, runtime, networkName);
    const parameters = parametersOf(verb, network, request);
    const ignoreUnknown = input.has(IGNORE_UNKNOWN_OPTION.name);
    const requests = refuseUnknownNames(() =>
      runtime.deriveRequests(network, { verb, ...parameters, valid, resolveNames: true, ignoreUnknown })
    );
    printStdout(formatDocument(requests.map(({ type, request }) => ({ type, request: parseJson(request) }))));
  },
};
export default derive;

function parametersOf(
  verb: DeriveOptions["verb"],
  network: NetworkConfigList | string,
  request: AttachmentRequest,
): Pick<DeriveOptions, "parameters"> {
  const { containerId, ifname, netns } = request;
  if (containerId === "" && verb !== "ADD") return {};
  const args = verb === "DEL" ? runtimeArgumentsForDel(network, request) : explicitRuntimeArguments(network, request);
  return { parameters: { containerId, ifname, ...(netns !== undefined && { netns }), ...args } };
}
