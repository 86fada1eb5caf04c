export interface ShellLine {
  /** Has no quotes. The last word is being typed, and may be empty. */
  readonly words: readonly string[];
  /** What the last word has before its quote that is still open. */
  readonly beforeQuote: string;
  readonly quote: "" | "'" | '"';
}

/** @param line up to the cursor */
export function parseShellLine(line: string): ShellLine {
  const words = [""];
  let quote: ShellLine["quote"] = "";
  let beforeQuote = "";
  for (let i = 0; i < line.length; i++) {
    const char = line[i]!;
    const isEscape = char === "\\" && quote !== "'" && i + 1 < line.length;
    if (isEscape) words.push(words.pop()! + line[++i]!);
    else if (quote !== "" && char === quote) quote = "";
    else if (quote === "" && (char === '"' || char === "'")) {
      quote = char;
      beforeQuote = words.at(-1)!;
    } else if (quote === "" && /\s/.test(char)) {
      if (words.at(-1) !== "") words.push("");
    } else words.push(words.pop()! + char);
  }
  return { words, beforeQuote, quote };
}

/** bash puts it behind the open quote, or else in the place of the part that follows the last `=` or `:`. */
export function bashReplacement(word: string, { words, beforeQuote, quote }: ShellLine): string {
  const current = words.at(-1)!;
  const breakIndex = Math.max(current.lastIndexOf("="), current.lastIndexOf(":")) + 1;
  switch (quote) {
    case "'":
      return word.slice(beforeQuote.length).replaceAll("'", "'\\''");
    case '"':
      return word.slice(beforeQuote.length).replace(/["\\$`]/g, "\\$&");
    case "":
      return word.slice(breakIndex).replace(/[^\w@%+=:,./-]/gu, "\\$&");
  }
}
