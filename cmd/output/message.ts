import { printStderr } from "../../ffi/sys/stdio.ts";
import { openScreen } from "./screen.ts";

// Most messages begin with `cni: `, which is as wide.
export const MESSAGE_INDENT = "     ";

/** Lines are as wide as the terminal: it would break words. */
export function printMessage(text: string): void {
  const { columns } = openScreen(2, {});
  printStderr(columns === undefined ? text : fitMessage(text, columns));
}

/** Breaks lines at blanks only. What is in quotes stays together if it can, and a command after a colon always. */
export function fitMessage(text: string, columns: number): string {
  return text.split("\n").flatMap((line) => fitLine(line, columns)).join("\n");
}

function fitLine(text: string, columns: number): string[] {
  if (Bun.stringWidth(text) <= columns) return [text];
  const lines: string[] = [];
  let line = text.slice(0, text.length - text.trimStart().length);
  let isEmpty = true;
  for (const word of wordsOf(text.trimStart(), columns - MESSAGE_INDENT.length)) {
    const joined = isEmpty ? line + word : `${line} ${word}`;
    if (isEmpty || Bun.stringWidth(joined) <= columns) line = joined;
    else {
      lines.push(line);
      line = MESSAGE_INDENT + word;
    }
    isEmpty = false;
  }
  return [...lines, line];
}

function wordsOf(text: string, width: number): string[] {
  const command = /(?<=: )cni [a-z].*$/.exec(text)?.[0] ?? "";
  const prose = text.slice(0, text.length - command.length);
  const words = (prose.match(/[^ "]*"[^"]*"[^ "]*|[^ ]+/g) ?? [])
    .flatMap((word) => Bun.stringWidth(word) > width ? word.split(" ") : [word]);
  return command === "" ? words : [...words, command];
}
