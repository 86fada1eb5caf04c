import { listNamedNetns } from "../../../ffi/named_netns.ts";
import { printStdout } from "../../../ffi/sys/stdio.ts";
import type { Command } from "../../command.ts";

const list: Command = {
  name: "list",
  summary: "print the names of all network namespaces, one per line",
  arguments: [],
  options: [],
  run: () => {
    for (const name of listNamedNetns()) printStdout(`${name}\n`);
  },
};
export default list;
