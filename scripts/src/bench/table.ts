/** The table: rows with what was measured, against what, and whether a goal is met. @module */
import { median, percentile } from "../harness/statistics.ts";

/** What a row is to reach: the figure that it compares with, at least or at most. */
export interface Goal {
  readonly atLeast?: number;
  readonly atMost?: number;
}

/** What one side took. */
export interface Figure {
  readonly who: string;
  readonly median: number;
  readonly p10: number;
  readonly p90: number;
  readonly values: number;
}

/** One line. */
export interface BenchRow {
  readonly what: string;
  readonly unit: string;
  readonly ours: Figure;
  readonly other?: Figure;
  /** What the goal speaks of: how much faster, how much more, or the figure itself. */
  readonly result: number;
  /** The result as a person reads it: `10.3 × as fast`. */
  readonly text: string;
  /** What the result and its goal are counted in: `×`, `ms`. */
  readonly measure: string;
  readonly goal?: Goal;
  readonly met?: boolean;
  readonly note?: string;
}

/** A group of rows under the words by which it is chosen: `chain`. */
export interface BenchSection {
  readonly name: string;
  readonly rows: readonly BenchRow[];
}

/** What a row is made of. */
export interface RowOptions {
  readonly what: string;
  readonly ours: Figure;
  readonly other?: Figure;
  readonly unit?: string;
  readonly goal?: Goal;
  readonly note?: string;
}

export function summarize(who: string, values: readonly number[]): Figure {
  return {
    who,
    median: median(values),
    p10: percentile(values, 0.1),
    p90: percentile(values, 0.9),
    values: values.length,
  };
}

/** How many times as fast as the other ours is. */
export function speedupRow(options: RowOptions & { readonly other: Figure }): BenchRow {
  const result = options.other.median / options.ours.median;
  return buildRow(options, result, "×", "× as fast");
}

/** How many times the other's figure ours is. */
export function ratioRow(options: RowOptions & { readonly other: Figure }): BenchRow {
  const result = options.ours.median / options.other.median;
  return buildRow(options, result, "×", "×");
}

/** How much more than the other ours is. */
export function differenceRow(options: RowOptions & { readonly other: Figure }): BenchRow {
  const result = options.ours.median - options.other.median;
  const { unit = "ms" } = options;
  return buildRow(options, result, unit, `${unit} more`);
}

/** The figure itself. */
export function plainRow(options: RowOptions): BenchRow {
  const { unit = "ms" } = options;
  return buildRow(options, options.ours.median, unit, unit);
}

function buildRow(options: RowOptions, result: number, measure: string, words: string): BenchRow {
  const { goal, unit = "ms" } = options;
  const met = goal && Number.isFinite(result) && result >= (goal.atLeast ?? -Infinity) &&
    result <= (goal.atMost ?? Infinity);
  return {
    ...options,
    unit,
    result,
    text: `${formatNumber(result)} ${words}`,
    measure,
    ...met === undefined ? {} : { met },
  };
}

/** A row that could not be measured. */
export function missingRow(what: string, why: string): BenchRow {
  return { what, unit: "", ours: summarize("", []), result: NaN, text: why, measure: "" };
}

const TABLE_HEAD = ["what", "cni", "against", "", "goal", ""];

/** The table as Markdown. */
export function formatMarkdown(sections: readonly BenchSection[]): string {
  const cells = sections.flatMap(({ rows }) => rows.map(rowCells));
  const widths = TABLE_HEAD.map((name, at) =>
    Math.max(3, ...[name, ...cells.map((row) => row[at])].map((text) => text.length))
  );
  const line = (row: readonly string[]) => `| ${row.map((text, at) => text.padEnd(widths[at])).join(" | ")} |`;
  return [line(TABLE_HEAD), `| ${widths.map((width) => "-".repeat(width)).join(" | ")} |`, ...cells.map(line)].join(
    "\n",
  );
}

function rowCells({ what, unit, ours, other, text, goal, measure, met }: BenchRow): readonly string[] {
  const value = (figure?: Figure) => figure && figure.values > 0 ? `${formatNumber(figure.median)} ${unit}` : "";
  const against = other ? `${value(other)} ${other.who}` : "";
  return [
    what,
    value(ours),
    against,
    text,
    goal ? goalText(goal, measure) : "",
    met === undefined ? "" : met ? "met" : "**not met**",
  ];
}

function goalText({ atLeast, atMost }: Goal, measure: string): string {
  return `${atLeast === undefined ? `≤ ${atMost}` : `≥ ${atLeast}`} ${measure}`;
}

/** Three digits of a number: `7.25`, `43.4`, `190`. */
export function formatNumber(value: number): string {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}
