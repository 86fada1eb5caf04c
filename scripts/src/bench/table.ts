import { markdownTable } from "../harness/markdown.ts";
import { median } from "../harness/statistics.ts";
import type { Samples } from "./measure.ts";

const MET = "met";

export interface BenchRow {
  readonly what: string;
  readonly cni: string;
  readonly against: string;
  readonly result: string;
  readonly goal: string;
  readonly verdict: string;
  readonly note?: string;
}

export interface ScaleLine {
  readonly name: string;
  readonly points: readonly { readonly containers: number; readonly ms: number }[];
}

/** A part of the time of a served call, as text. */
export interface TimePart {
  readonly what: string;
  readonly add: string;
  readonly del: string;
}

export interface BenchFigures {
  readonly about: string;
  readonly rows: readonly BenchRow[];
  readonly lines: readonly ScaleLine[];
  readonly remarks: readonly string[];
  readonly times: readonly TimePart[];
}

/** How many times as fast as the other ours is, how many times its figure, how much more; or the figure itself. */
type Comparison = "faster" | "times" | "more" | "alone";

interface RowOptions {
  readonly atLeast?: number;
  readonly atMost?: number;
  readonly unit?: string;
  readonly note?: string;
}

/** A row from all values of both sides; their medians count. */
export function row(
  what: string,
  comparison: Comparison,
  ours: readonly number[],
  [name, others]: readonly [name: string, values: readonly number[]] = ["", []],
  { atLeast, atMost, unit = "ms", note }: RowOptions = {},
): BenchRow {
  const [own, other] = [median(ours), median(others)];
  const [result, measure, words] = ({
    faster: [other / own, "×", "× as fast"],
    times: [own / other, "×", "×"],
    more: [own - other, unit, `${unit} more`],
    alone: [own, unit, unit],
  } as const)[comparison];
  const figure = (value: number) => Number.isFinite(value) ? `${formatNumber(value)} ${unit} ` : "";
  const isMet = Number.isFinite(result) && result >= (atLeast ?? -Infinity) && result <= (atMost ?? Infinity);
  const goal = atLeast !== undefined ? `≥ ${atLeast} ${measure}` : atMost !== undefined ? `≤ ${atMost} ${measure}` : "";
  return {
    what,
    cni: figure(own).trim(),
    against: name && figure(other) + name,
    result: `${formatNumber(result)} ${words}`,
    goal,
    verdict: goal && (isMet ? MET : "**not met**"),
    ...note === undefined ? {} : { note },
  };
}

/** Rows for ADD and DEL of two sides that give `{ add, del }`, against the reference. */
export const verbRows = (
  samples: Samples,
  what: string,
  ours: string,
  other: string,
  goal?: RowOptions,
  delGoal = goal,
) =>
  ["add", "del"].map((verb) => {
    const reference = ["reference", samples[`${other}.${verb}`]!] as const;
    const options = verb === "add" ? goal : delGoal;
    return row(`${what}: ${verb.toUpperCase()}`, "faster", samples[`${ours}.${verb}`]!, reference, options);
  });

export function countGoals(rows: readonly BenchRow[]): { readonly met: number; readonly missed: number } {
  const goals = rows.filter(({ goal }) => goal !== "");
  const met = goals.filter(({ verdict }) => verdict === MET).length;
  return { met, missed: goals.length - met };
}

export const missingRow = (what: string, why: string): BenchRow => ({
  what,
  cni: "",
  against: "",
  result: why,
  goal: "",
  verdict: "",
});

export function formatMarkdown({ about, rows, lines, remarks, times }: BenchFigures): string {
  const cells = rows.map((line) => [line.what, line.cni, line.against, line.result, line.goal, line.verdict]);
  const counts = lines[0]?.points.map(({ containers }) => containers) ?? [];
  const scaleRows = lines.map(({ name, points }) => [
    `ADD, ${name}`,
    ...counts.map((count) => {
      const point = points.find(({ containers }) => containers === count);
      return point ? `${formatNumber(point.ms)} ms` : "–";
    }),
  ]);
  const scale = lines.length === 0 ? [] : [markdownTable(["containers", ...counts.map(String)], scaleRows)];
  const list = remarks.map((remark) => `- ${remark}\n`).join("");
  const table = markdownTable(["what", "cni", "against", "", "goal", ""], cells);
  const parts = times.map(({ what, add, del }) => [what, add, del]);
  const where = parts.length === 0
    ? []
    : [markdownTable(["the whole chain by `cni run`, served", "ADD", "DEL"], parts)];
  return [`${about}:\n`, table, ...where, ...scale, list].join("\n").trimEnd();
}

/** Three digits of a number: `7.25`, `43.4`, `190`. */
export function formatNumber(value: number): string {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}
