import { printStdout } from "../../ffi/sys/stdio.ts";
import type { Command } from "../command.ts";

const help: Command = {
  name: "help",
  summary: "print the help for a command, as its option --help does",
  arguments: [{
    name: "COMMAND",
    help: "the words of a command",
    completion: "command",
    optional: true,
    repeated: true,
  }],
  options: [],
  examples: [{ command: "cni help run add", about: 'the same as "cni run add --help"' }],
  run: async ({ words }, { formatHelp }) => printStdout(await formatHelp(words)),
};
export default help;
