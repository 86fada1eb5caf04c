import { printStdout } from "../../../ffi/sys/stdio.ts";
import type { NetworkAttachment } from "../../../runtime/attachments.ts";
import { withoutLoopbacks } from "../../../runtime/networks/loopbacks.ts";
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
import type { Command } from "../../command.ts";
import { openScreen, type Style } from "../../output/screen.ts";
import { formatTable } from "../../output/table.ts";

const HEADER = ["NETWORK", "CONTAINER", "INTERFACE", "STATE", "ADDRESSES", "NAMESPACE", "REASON"];

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
  arguments: [{ ...NETWORK_ARGUMENT, optional: true }],
  options: [DOCUMENT_OPTION, CONF_DIR_OPTION, CACHE_DIR_OPTION],
  examples: [{ command: "cni run list --json", about: "all attachments with their results, for programs" }],
  run(input, context) {
    const [word = ""] = input.words;
    const runtime = openRuntime(input, context);
    const network = isNetworkName(word) ? word || undefined : loadRequested(word, input, context).name;
    const attachments = runtime.attachments(network);
    // Without attachments, there may be no such network.
    if (network !== undefined && attachments.length === 0) loadRequested(word, input, context);
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

function tableRow(
  { network, containerId, ifname, state, netns = "", reason = "", result }: NetworkAttachment,
): string[] {
  const addresses = (result?.ips ?? []).map(({ address }) => address);
  return [network, containerId, ifname, state, addresses.join(","), netns, reason];
}

function styleOfCell(cell: string, column: number): Style | undefined {
  return HEADER[column] === "STATE" ? STATE_STYLES[cell as NetworkAttachment["state"]] : undefined;
}

/** The newest form, whatever version the network has. */
function jsonDocument({ result, ...rest }: NetworkAttachment): object {
  return { ...rest, ...(result && { result: formatResult(result, LATEST) }) };
}
