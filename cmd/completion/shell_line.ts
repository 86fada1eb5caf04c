/** Words as bash reads and writes them. @module */

/** The words of a line up to the cursor, without quotes; the last may be empty, or have no closing quote. */
export function splitShellLine(line: string): string[] {
  const words = [""];
  let quote = "";
  for (let i = 0; i < line.length; i++) {
    const char = line[i]!;
    const isEscape = char === "\\" && quote !== "'" && i + 1 < line.length;
    if (isEscape) words.push(words.pop()! + line[++i]!);
    else if (quote === "" ? char === '"' || char === "'" : char === quote) quote = quote === "" ? char : "";
    else if (quote === "" && /\s/.test(char)) {
      if (words.at(-1) !== "") words.push("");
    } else words.push(words.pop()! + char);
  }
  return words;
}

/** What bash puts in the place of the part of a word that follows its last `=` or `:`. */
export function bashReplacement(word: string, current: string): string {
  const start = Math.max(current.lastIndexOf("="), current.lastIndexOf(":")) + 1;
  return word.slice(start).replace(/[^\w@%+=:,./-]/g, "\\$&");
}
