import { printable } from "../../spec/printable.ts";
import type { LintProblem, LintReport } from "../../networks/lint/lint.ts";
import type { Screen, Style } from "./screen.ts";

const COLOURS: Readonly<Record<LintProblem["severity"], Style>> = { error: "red", warning: "yellow", note: "cyan" };

// For a line of the file, in a file or a pipe.
const MAX_SHOWN = 120;
const INDENT = "    ";

/**
 * Looks like a compiler's: `FILE:LINE:COLUMN severity message [rule]`, the line, a caret, a suggestion; at last a
 * count.
 */
export function formatLintReport({ files, problems }: LintReport, paths: readonly string[], screen: Screen): string {
  if (files.length === 0) return `There is no network configuration in ${paths.join(", ")}\n`;
  const lines = problems.flatMap((problem) => [...problemLines(problem, screen), ""]);
  return [...lines, countLine({ files, problems }), ""].join("\n");
}

function problemLines(
  { file, line, column, length, severity, rule, message, suggestion, text }: LintProblem,
  screen: Screen,
) {
  const width = (screen.columns ?? MAX_SHOWN + INDENT.length) - INDENT.length - 1;
  const shown = excerptAround(text, column - 1, width);
  const marked = Math.max(1, Math.min(length, shown.text.length - shown.offset));
  const caret = padding(shown.text.slice(0, shown.offset)) +
    screen.style(COLOURS[severity], `^${"~".repeat(marked - 1)}`);
  // A file that cannot be read has none.
  const hasSource = text !== "";
  const head = `${screen.style("bold", `${file}:${line}:${column}`)} ${screen.style(COLOURS[severity], severity)} ${
    withoutTabs(message)
  } ${screen.style("dim", `[${rule}]`)}`;
  return [
    ...fitted(head, screen.columns),
    ...hasSource ? [`${INDENT}${shown.text}`.trimEnd(), `${INDENT}${caret}`] : [],
    ...suggestion === undefined
      ? []
      : fitted(withoutTabs(suggestion), screen.columns && screen.columns - INDENT.length).map((text) => INDENT + text),
  ];
}

const fitted = (text: string, columns: number | undefined): string[] =>
  (columns === undefined ? text : Bun.wrapAnsi(text, columns)).split("\n");

const padding = (text: string): string => " ".repeat(Bun.stringWidth(text));

/** Tabs have the width of one character. */
function excerptAround(line: string, index: number, width: number): { text: string; offset: number } {
  const start = line.length <= width ? 0 : Math.max(0, Math.min(index - Math.floor(width / 3), line.length - width));
  return { text: withoutTabs(line.slice(start, start + width)), offset: index - start };
}

const withoutTabs = (text: string): string => printable(text.replace(/\t/g, " "));

function countLine({ files, problems }: LintReport): string {
  const counts = (["error", "warning", "note"] as const).flatMap((severity) => {
    const count = problems.filter((problem) => problem.severity === severity).length;
    return count === 0 ? [] : [plural(count, severity)];
  });
  return `${counts.join(", ") || "No problem"} in ${plural(files.length, "file")}`;
}

const plural = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? "" : "s"}`;
