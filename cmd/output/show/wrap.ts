import type { OutlineNode } from "./outline.ts";

const INDENT = "  ";

export function lineTexts(outline: OutlineNode, width: number): string[] {
  const { kind, name, details, children } = outline;
  const [first = "", ...more] = wrapWords([`${kind} ${name}`, ...details], width - INDENT.length);
  const below = children.flatMap((child) => lineTexts(child, width - INDENT.length));
  return [first, ...[...more, ...below].map((text) => INDENT + text)];
}

export function wrapWords(parts: readonly string[], width: number): string[] {
  const lines: string[] = [];
  let line = "";
  parts.forEach((text, i) => {
    // The first part is a title.
    const part = i > 0 && i < parts.length - 1 ? `${text},` : text;
    const joined = line === "" ? part : `${line}${i === 1 ? "  " : " "}${part}`;
    if (Bun.stringWidth(joined) <= width) line = joined;
    else {
      if (line !== "") lines.push(line);
      const pieces = brokenText(part, width);
      line = pieces.pop() ?? "";
      lines.push(...pieces);
    }
  });
  return [...lines, line];
}

function brokenText(text: string, width: number): string[] {
  return Bun.wrapAnsi(text, width, { hard: true, trim: true }).split("\n");
}
