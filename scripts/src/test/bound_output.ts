/** Bounds what a failed test prints: a comparison of two large values has thousands of lines, and hides the other failures. @module */

const LINE_CHARACTERS = 300;
/** What failed comes first, where it failed and the test's name come last. */
const [FIRST_LINES, LAST_LINES] = [40, 20] as const;

/** @param output of `bun test` @returns the same with long lines cut, and without the middle of what each test printed */
export function boundOutput(output: string): string {
  const parts = output.split(/(?<=^\((?:pass|fail|skip|todo)\).*\n)/m);
  return parts.map(boundPart).join("");
}

function boundPart(part: string): string {
  const lines = part.split("\n").map(cutLine);
  const surplus = lines.length - FIRST_LINES - LAST_LINES;
  if (surplus <= 1) return lines.join("\n");
  return [...lines.slice(0, FIRST_LINES), `[${surplus} lines left out]`, ...lines.slice(-LAST_LINES)].join("\n");
}

const cutLine = (line: string): string =>
  line.length <= LINE_CHARACTERS
    ? line
    : `${line.slice(0, LINE_CHARACTERS)} [${line.length - LINE_CHARACTERS} characters left out]`;
