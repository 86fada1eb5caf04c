import { listNamedNetns, namedNetnsPath } from "../../../ffi/netns/named.ts";
import { printStdout } from "../../../ffi/sys/stdio.ts";
import { formatDocument } from "../../output/document.ts";
import { DOCUMENT_OPTION } from "../../arguments/runtime.ts";
import { isQuiet, QUIET_OPTION } from "../../arguments/quiet.ts";
import type { Command } from "../../command.ts";

interface NamedNetns {
  readonly name: string;
  readonly path: string;
}

const list: Command = {
  name: "list",
  summary: "print the names of all network namespaces, one per line",
  arguments: [],
  options: [QUIET_OPTION, DOCUMENT_OPTION],
  examples: [{ command: "cni netns list --json", about: "names and paths, for programs" }],
  run: (input) => {
    const names = listNamedNetns();
    if (isQuiet(input) || !input.has(DOCUMENT_OPTION.name)) {
      return printStdout(names.map((name) => `${name}\n`).join(""));
    }
    const namespaces: NamedNetns[] = names.map((name) => ({ name, path: namedNetnsPath(name) }));
    printStdout(formatDocument(namespaces));
  },
};
export default list;
