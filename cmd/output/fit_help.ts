// The texts below examples are as deep.
const STACKED_INDENT = 6;

/** Usage and examples stay whole: people copy them. */
export function fitHelp(text: string, columns = Infinity): string {
  return text.trimEnd().split("\n\n").map((section) => fitSection(section, columns)).join("\n\n") + "\n";
}

function fitSection(section: string, columns: number): string {
  const isTooWide = section.split("\n").some((line) => Bun.stringWidth(line) > columns);
  if (!isTooWide) return section;
  const withoutBreaks = section.replace(/(?<=^\S.*)\n(?=\S)/gm, " ");
  return withoutBreaks.split("\n").flatMap((line) => fitLine(line, columns)).join("\n");
}

function fitLine(line: string, columns: number): string[] {
  const [, before = "", gap = "", about = ""] = /^( *\S.*?)( {2,})(\S.*)$/.exec(line) ?? [];
  const indent = Bun.stringWidth(before + gap);
  if (about !== "" && indent > columns / 2) return [before, ...wrapped(about, STACKED_INDENT, columns)];
  if (about !== "") return [before + gap + wrapped(about, indent, columns).join("\n").trimStart()];
  const leading = line.length - line.trimStart().length;
  const isCommand = 0 < leading && leading < STACKED_INDENT;
  return isCommand ? [line] : wrapped(line.trimStart(), leading, columns);
}

function wrapped(text: string, indent: number, columns: number): string[] {
  return Bun.wrapAnsi(text, columns - indent).split("\n").map((line) => " ".repeat(indent) + line);
}
