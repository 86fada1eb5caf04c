/** The plot: cost against the number of containers, as SVG that is readable on light and dark pages. @module */
import type { PlotLine, PlotPoint } from "./scale.ts";

/** What the plot says besides its lines. */
export interface PlotText {
  readonly title: string;
  readonly subtitle: string;
  readonly remarks: readonly string[];
}

const WIDTH = 790;
const HEIGHT = 440;
const AREA = { left: 64, right: 600, top: 64, bottom: 340 };
/** Between two labels at the ends of lines. */
const LABEL_DISTANCE = 16;

const STYLE = `
  .back { fill: #ffffff } .text { fill: #1f2328 } .quiet { fill: #59636e } .grid { stroke: #d1d9e0 }
  .line { fill: none; stroke-width: 2 }
  .line0 { stroke: #0969da } .mark0 { fill: #0969da }
  .line1 { stroke: #1a7f37; stroke-dasharray: 7 3 } .mark1 { fill: #1a7f37 }
  .line2 { stroke: #bc4c00; stroke-dasharray: 2 3 } .mark2 { fill: #bc4c00 }
  @media (prefers-color-scheme: dark) {
    .back { fill: #0d1117 } .text { fill: #e6edf3 } .quiet { fill: #9198a1 } .grid { stroke: #3d444d }
    .line0 { stroke: #4493f8 } .mark0 { fill: #4493f8 }
    .line1 { stroke: #3fb950 } .mark1 { fill: #3fb950 }
    .line2 { stroke: #f0883e } .mark2 { fill: #f0883e }
  }
  text { font-family: -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; font-size: 12px }
  .title { font-size: 15px; font-weight: 600 }
`;

/** Draws lines whose points are ascending; both axes are logarithmic. */
export function plot(lines: readonly PlotLine[], { title, subtitle, remarks }: PlotText): string {
  const drawn = lines.filter(({ points }) => points.length > 0);
  const points = drawn.flatMap((line) => line.points);
  const x = axis(points.map(({ containers }) => containers), AREA.left, AREA.right);
  const y = axis(points.map(({ ms }) => ms), AREA.bottom, AREA.top);
  const position = ({ containers, ms }: PlotPoint): readonly [number, number] => [x.at(containers), y.at(ms)];
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" width="${WIDTH}" height="${HEIGHT}" role="img">`,
    `<title>${escape(title)}</title>`,
    `<style>${STYLE}</style>`,
    `<rect class="back" width="${WIDTH}" height="${HEIGHT}" rx="6"/>`,
    text(AREA.left - 40, 26, "text title", title),
    text(AREA.left - 40, 46, "quiet", subtitle),
    ...y.ticks.map((value) => horizontal(y.at(value), `${value} ms`)),
    ...x.ticks.map((value) => text(x.at(value), AREA.bottom + 18, "text", String(value), "middle")),
    text(
      (AREA.left + AREA.right) / 2,
      AREA.bottom + 40,
      "quiet",
      "containers on the host; both axes are logarithmic",
      "middle",
    ),
    ...drawn.flatMap((line, at) => drawLine(line.points.map(position), at)),
    ...labels(drawn, (line) => position(line.points.at(-1)!)),
    ...remarks.map((remark, at) => text(AREA.left - 40, AREA.bottom + 64 + 16 * at, "quiet", remark)),
    "</svg>",
    "",
  ].join("\n");
}

/** A logarithmic axis from `from` to `to`, with ticks at 1, 2 and 5 of each power of ten, or at the powers where those are many. */
function axis(values: readonly number[], from: number, to: number) {
  const all = [-1, 0, 1, 2, 3, 4].flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power));
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const first = all.findLastIndex((tick) => tick <= low);
  const last = all.findIndex((tick) => tick >= high);
  const every = all.slice(Math.max(first, 0), last + 1);
  const [start, end] = [every[0], every.at(-1)!];
  const scale = (to - from) / (Math.log10(end / start) || 1);
  const ticks = every.length > 8 ? every.filter((tick) => Number.isInteger(Math.log10(tick))) : every;
  return { ticks, at: (value: number) => from + Math.log10(value / start) * scale };
}

function horizontal(y: number, label: string): string {
  const line = `<line class="grid" x1="${AREA.left}" x2="${AREA.right}" y1="${round(y)}" y2="${round(y)}"/>`;
  return line + text(AREA.left - 8, y + 4, "text", label, "end");
}

function drawLine(positions: readonly (readonly [number, number])[], at: number): readonly string[] {
  const path = positions.map(([x, y]) => `${round(x)},${round(y)}`).join(" ");
  return [`<polyline class="line line${at}" points="${path}"/>`, ...positions.map(([x, y]) => mark(x, y, at))];
}

/** Lines differ in the shape of their marks as well as in their colours. */
function mark(x: number, y: number, at: number): string {
  const style = `class="mark${at}"`;
  if (at === 0) return `<circle ${style} cx="${round(x)}" cy="${round(y)}" r="4"/>`;
  if (at === 1) return `<rect ${style} x="${round(x - 3.5)}" y="${round(y - 3.5)}" width="7" height="7"/>`;
  return `<path ${style} d="M${round(x)} ${round(y - 5)}l5 9h-10z"/>`;
}

/** Names and last values at the ends of the lines, apart from each other. */
function labels(lines: readonly PlotLine[], end: (line: PlotLine) => readonly [number, number]): readonly string[] {
  const sorted = lines.map((line, at) => ({ line, at, position: end(line) })).sort((a, b) =>
    a.position[1] - b.position[1]
  );
  let lowest = -Infinity;
  return sorted.map(({ line, at, position: [x, y] }) => {
    lowest = Math.max(lowest + LABEL_DISTANCE, y + 4);
    const { ms } = line.points.at(-1)!;
    return text(x + 10, lowest, `mark${at}`, `${line.name}, ${ms.toFixed(0)} ms`);
  });
}

function text(x: number, y: number, style: string, content: string, anchor = "start"): string {
  return `<text class="${style}" x="${round(x)}" y="${round(y)}" text-anchor="${anchor}">${escape(content)}</text>`;
}

const round = (value: number): string => String(Math.round(value * 10) / 10);

function escape(content: string): string {
  return content.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
