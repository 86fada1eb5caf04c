/** Each text tells its length, so that no font makes it wider than its box. @module */
import {
  CHARACTER_WIDTH,
  FONT_SIZE,
  LABEL_FONT_SIZE,
  type Layout,
  layoutOf,
  LINE_HEIGHT,
  lineY,
  PADDING,
  type PlacedBox,
  type PlacedWire,
} from "./layout.ts";
import type { BoxRow, Topology, Wire } from "./topology.ts";

const FRAME = { fill: "#f3f4f6", stroke: "#9aa5b1" };
const UPLINK = { fill: "#fdf1de", stroke: "#b7791f" };
const CONTAINER = { fill: "#ffffff", stroke: "#9aa5b1" };
const TABLE = { fill: "#f7f5fb", stroke: "#b9afd0" };
// One for each device, then again from the first.
const DEVICES = [
  { fill: "#e3effc", stroke: "#2b6cb0" },
  { fill: "#e2f5f0", stroke: "#23806c" },
  { fill: "#f1e9fb", stroke: "#7544b5" },
  { fill: "#fbf3d9", stroke: "#8f6b00" },
  { fill: "#e6f3fa", stroke: "#0e7490" },
  { fill: "#f0f0e4", stroke: "#65702b" },
];
const PUBLISHED = "#c2410c";
const BAD = "#d01f1f";
const BAD_FILL = "#fdecec";
const TONES: Readonly<Record<BoxRow["tone"], string>> = {
  title: "#111827",
  plain: "#111827",
  address: "#166534",
  published: PUBLISHED,
  faint: "#5b6572",
  bad: BAD,
};
const BOLD: ReadonlySet<BoxRow["tone"]> = new Set(["title"]);

interface Colours {
  readonly fill: string;
  readonly stroke: string;
}

export function formatSvg(topology: Topology): string {
  const layout = layoutOf(topology);
  return svgDocument(layout, [
    drawRectangle(layout.frame, FRAME, 8),
    drawText("host", layout.frame.x + PADDING, lineY(layout.frame, 0) - PADDING / 2, TONES.faint),
    routingLine(layout),
    ...layout.wires.flatMap(drawWire),
    ...layout.uplinks.map((box) => drawBox(box, UPLINK)),
    ...layout.devices.map((box, i) => drawBox(box, DEVICES[i % DEVICES.length]!)),
    ...layout.containers.map((box) => drawBox(box, CONTAINER)),
    ...layout.tables.map((box) => drawBox(box, TABLE)),
  ]);
}

function routingLine({ frame, uplinks, devices }: Layout): string {
  const routed = [...uplinks, ...devices].filter(({ box }) => box.isRouted);
  if (routed.length < 2) return "";
  const x = frame.x + 2 * PADDING;
  const levels = routed.map((box) => lineY(box, 0));
  const path = `M${x} ${levels[0]}V${levels.at(-1)}${routed.map((box, i) => `M${x} ${levels[i]}H${box.x}`).join("")}`;
  return `<path d="${path}" fill="none" stroke="${FRAME.stroke}" stroke-width="2"/>`;
}

const sourceColour = ({ from }: Wire): string =>
  from === "outside" ? PUBLISHED : DEVICES[from % DEVICES.length]!.stroke;
const colourOf = (wire: Wire): string => wire.isBroken ? BAD : sourceColour(wire);

/** Only the last part is drawn broken: others share the rest. */
function drawWire({ wire, points }: PlacedWire): string[] {
  const colour = colourOf(wire);
  const [x = 0, y = 0] = points.at(-1)!;
  const end = wire.from === "outside"
    ? `<path d="M${x} ${y}l-7 -4v8z" fill="${colour}"/>`
    : `<circle cx="${x}" cy="${y}" r="3" fill="${colour}"/>`;
  const labelX = x - 9 - textWidth(wire.label, LABEL_FONT_SIZE);
  return [
    ...points.length > 2 ? [drawLine(points.slice(0, -1), sourceColour(wire))] : [],
    drawLine(points.slice(-2), colour, wire.isBroken ? ' stroke-dasharray="5 3"' : ""),
    end,
    ...wire.label === "" ? [] : [drawText(wire.label, labelX, y - LINE_HEIGHT / 2 + 2, colour, LABEL_FONT_SIZE)],
  ];
}

function drawLine(points: PlacedWire["points"], colour: string, style = ""): string {
  const path = `M${points.map((point) => point.join(" ")).join("L")}`;
  return `<path d="${path}" fill="none" stroke="${colour}" stroke-width="1.5" stroke-linecap="square"${style}/>`;
}

function drawBox(placed: PlacedBox, colours: Colours): string {
  const { box, lines, x } = placed;
  const own = box.isBroken ? { fill: BAD_FILL, stroke: BAD } : colours;
  const texts = lines.map(({ text, tone, wire }, i) => {
    const colour = tone === "plain" && wire ? colourOf(wire) : TONES[tone];
    return drawText(text, x + PADDING, lineY(placed, i), colour, FONT_SIZE, BOLD.has(tone));
  });
  return [drawRectangle(placed, own, 6), ...texts].join("\n");
}

function drawRectangle(
  { x, y, width, height }: Layout["frame"],
  { fill, stroke }: Colours,
  radius: number,
): string {
  return `<rect x="${x}" y="${y}" width="${width}" height="${height}" rx="${radius}" fill="${fill}" stroke="${stroke}"/>`;
}

const textWidth = (text: string, size: number): number => Bun.stringWidth(text) * size * CHARACTER_WIDTH;

/** @param middle of the line, from the top */
function drawText(text: string, x: number, middle: number, colour: string, size = FONT_SIZE, isBold = false): string {
  const font = `${size === FONT_SIZE ? "" : ` font-size="${size}"`}${isBold ? ' font-weight="bold"' : ""}`;
  return `<text x="${x.toFixed(1)}" y="${(middle + size / 3).toFixed(1)}" textLength="${
    textWidth(text, size).toFixed(1)
  }" ` +
    `lengthAdjust="spacingAndGlyphs" fill="${colour}"${font}>${escapeXml(text)}</text>`;
}

function svgDocument({ width, height }: Layout, shapes: readonly string[]): string {
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" ` +
    `font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="${FONT_SIZE}" xml:space="preserve">`,
    "<title>Containers and their networks</title>",
    `<rect width="${width}" height="${height}" fill="#ffffff"/>`,
    ...shapes.filter((shape) => shape !== ""),
    "</svg>\n",
  ].join("\n");
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&apos;",
};

function escapeXml(text: string): string {
  return text.replace(/[&<>"']/g, (char) => ENTITIES[char]!);
}
