import { printStdout } from "../../ffi/sys/stdio.ts";
import type { Command } from "../command.ts";
import { completeWords } from "../completion/complete.ts";
import { SHELLS } from "../completion/scripts.ts";
import { bashReplacement, splitShellLine } from "../completion/shell_line.ts";

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
    const isBash = shell === "bash";
    const words = isBash ? splitShellLine(rest[0] ?? "").slice(1) : rest;
    const { candidates, paths } = await completeWords(context.root, words, context);
    const lines = candidates.map(({ word, about = "" }) =>
      isBash ? bashReplacement(word, words.at(-1) ?? "") : `${word}\t${about}`
    );
    printStdout([paths, ...lines].map((line) => `${line}\n`).join(""));
  },
};
export default completeWordsCommand;
