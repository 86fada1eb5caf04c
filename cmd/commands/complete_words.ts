import { printStdout } from "../../ffi/sys/stdio.ts";
import type { Command } from "../command.ts";
import { completeWords } from "../completion/complete.ts";
import { SHELLS } from "../completion/scripts.ts";
import { bashReplacement, parseShellLine } from "../completion/shell_line.ts";
import { printable } from "../../spec/printable.ts";

const completeWordsCommand: Command = {
  name: "complete-words",
  summary: "print what may stand at the end of a command line, for the scripts of completion",
  arguments: [
    { name: "SHELL", help: SHELLS.join(", "), choices: SHELLS },
    { name: "WORD", help: "behind the program's name; for bash, the whole line", optional: true, repeated: true },
  ],
  options: [],
  hidden: true,
  async run({ words: [shell, ...rest] }, context) {
    const line = shell === "bash" ? parseShellLine(rest[0] ?? "") : undefined;
    const { candidates, paths } = await completeWords(context.root, line?.words.slice(1) ?? rest, context);
    const lines = candidates.filter(({ word }) => word === printable(word)).map(({ word, about = "" }) =>
      line ? bashReplacement(word, line) : `${word}\t${printable(about)}`
    );
    printStdout([paths, ...lines].map((line) => `${line}\n`).join(""));
  },
};
export default completeWordsCommand;
