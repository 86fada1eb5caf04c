import { printStdout } from "../../../ffi/sys/stdio.ts";
import type { NetworkAttachment } from "../../../runtime/attachments.ts";
import { EngineNames, type NamedAttachment, shortContainerId } from "../../../containers/engine_names.ts";
import { findByName, findContainerOrThrow } from "../../../containers/find_container.ts";
import { withoutLoopbacks } from "../../../networks/loopbacks.ts";
import { formatDocument } from "../../output/document.ts";
import { formatResult } from "../../../spec/result.ts";
import { LATEST } from "../../../spec/version.ts";
import {
  CACHE_DIR_OPTION,
  CONF_DIR_OPTION,
  DOCUMENT_OPTION,
  isNetworkName,
  loadRequested,
  NETWORK_ARGUMENT,
  openRuntime,
} from "../../arguments/runtime.ts";
import { OR_CONTAINER } from "../../arguments/attachment.ts";
import { isQuiet, printNames, QUIET_OPTION } from "../../arguments/quiet.ts";
import type { Command } from "../../command.ts";
import type { CliContext } from "../../../program/start.ts";
import type { ParsedOptions } from "../../options.ts";
import { openScreen, type Style } from "../../output/screen.ts";
import { formatTable } from "../../output/table.ts";

const HEADER = ["NETWORK", "NAME", "CONTAINER", "INTERFACE", "STATE", "ADDRESSES", "NAMESPACE", "REASON"];

const STATE_STYLES: Readonly<Record<NetworkAttachment["state"], Style>> = {
  attached: "green",
  incomplete: "yellow",
  unfinished: "yellow",
  gone: "red",
};

const list: Command = {
  name: "list",
  summary: "list the remembered attachments",
  description: `"incomplete" attachments have lost an interface or an address. Rules are not checked: "run check" and
"run restore" do that.`,
  arguments: [{
    name: "NETWORK|CONTAINER",
    help: `${NETWORK_ARGUMENT.help}. ${OR_CONTAINER}`,
    optional: true,
  }],
  options: [QUIET_OPTION, DOCUMENT_OPTION, CONF_DIR_OPTION, CACHE_DIR_OPTION],
  examples: [{ command: "cni run list --json", about: "all attachments with their results, for programs" }],
  run(input, context) {
    const [word = ""] = input.words;
    const quiet = isQuiet(input);
    const attachments = listRequested(word, input, context);
    if (quiet) return printNames(attachments.map(({ containerId }) => containerId));
    printStdout(
      input.has(DOCUMENT_OPTION.name) ? formatDocument(attachments.map(jsonDocument)) : formatTable(
        HEADER,
        withoutLoopbacks(attachments).map(tableRow),
        openScreen(1, context.env),
        styleOfCell,
      ),
    );
  },
};
export default list;

function listRequested(word: string, input: ParsedOptions, context: CliContext): NamedAttachment[] {
  const runtime = openRuntime(input, context);
  const names = new EngineNames();
  if (word === "") return names.addTo(runtime.attachments());
  const ofNetwork = isNetworkName(word) ? runtime.attachments(word) : [];
  if (ofNetwork.length > 0) return names.addTo(ofNetwork);
  const all = names.addTo(runtime.attachments());
  const ofContainer = findByName(word, all);
  if (ofContainer.length > 0) return [...ofContainer];
  try {
    const { name } = loadRequested(word, input, context);
    return all.filter(({ network }) => network === name);
  } catch (error) {
    return [...findContainerOrThrow(word, all, error)];
  }
}

function tableRow(attachment: NamedAttachment): string[] {
  const { network, containerId, name, ifname, state, netns = "", reason = "", result } = attachment;
  const addresses = (result?.ips ?? []).map(({ address }) => address);
  const id = name === undefined ? containerId : shortContainerId(containerId);
  return [network, name ?? "", id, ifname, state, addresses.join(","), netns, reason];
}

function styleOfCell(cell: string, column: number): Style | undefined {
  return HEADER[column] === "STATE" ? STATE_STYLES[cell as NetworkAttachment["state"]] : undefined;
}

/** The result has the newest form, whatever version the network has. */
function jsonDocument({ result, ...rest }: NamedAttachment): object {
  return { ...rest, ...(result && { result: formatResult(result, LATEST) }) };
}
