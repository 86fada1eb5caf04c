/**
 * A picture: the host and its uplinks on top, below it a panel for each device with its containers as cards.
 *
 * Each text tells its length, so that no font makes it wider than its box.
 */
import type { OutlineNode, OutlineRole } from "./outline.ts";
import { lineTexts, wrapWords } from "./wrap.ts";

const FONT_SIZE = 12;
/** Of a monospaced font. */
const CHARACTER_WIDTH = 7.2;
const LINE_HEIGHT = 16;
const PADDING = 10;
const GAP = 14;
/** Left of all panels is the line that joins them. */
const TRUNK_X = 16;
const PANEL_X = 36;
const MARGIN = 16;
const CARD_WIDTH = 306;
const CARD_CHARACTERS = Math.floor((CARD_WIDTH - 2 * PADDING) / CHARACTER_WIDTH);
const MIN_COLUMNS = 2;
const MAX_COLUMNS = 6;

const FILLS: Readonly<Record<OutlineRole, string>> = {
  host: "#e8eaed",
  uplink: "#fdf1de",
  device: "#e9f2fc",
  port: "#ffffff",
  container: "#ffffff",
  table: "#f4f0fa",
  line: "#ffffff",
};

interface TextLine {
  readonly text: string;
  readonly colour: string;
  readonly bold?: true;
}

const COLOURS: Readonly<Record<string, string>> = {
  address: "#137333",
  published: "#1a56c4",
  elements: "#6b7280",
  rule: "#6b7280",
};
const TEXT = "#1f2328";
const FAINT = "#6b7280";
const BAD = "#c5221f";
const STROKE = "#8fa1b3";

/** A box of full width and all that is in it. */
interface Panel {
  readonly height: number;
  draw(x: number, y: number): string[];
}

export function formatSvg(root: OutlineNode): string {
  const panels = panelNodes(root);
  const cards = Math.max(...panels.map((panel) => cardsOf(panel).length));
  const columns = Math.min(MAX_COLUMNS, Math.max(MIN_COLUMNS, Math.ceil(Math.sqrt(cards / 2))));
  const width = columns * (CARD_WIDTH + GAP) - GAP + 2 * PADDING;
  const levels: number[] = [];
  const shapes: string[] = [];
  let y = MARGIN;
  for (const panel of panels.map((outline) => panelOf(outline, columns, width))) {
    levels.push(y + PADDING + LINE_HEIGHT / 2);
    shapes.push(...panel.draw(PANEL_X, y));
    y += panel.height + GAP;
  }
  return svgDocument(PANEL_X + width + MARGIN, y - GAP + MARGIN, [trunk(levels), ...shapes]);
}

/** The host with its uplinks, devices, containers without a device, tables. */
function panelNodes(root: OutlineNode): OutlineNode[] {
  const having = (...roles: readonly OutlineRole[]) => root.children.filter(({ role }) => roles.includes(role));
  const separate = having("port", "container");
  const others: OutlineNode = { ...root, kind: "containers that share no link of the host", children: separate };
  return [
    { ...root, children: having("uplink") },
    ...having("device"),
    ...separate.length > 0 ? [others] : [],
    ...having("table"),
  ];
}

const cardsOf = ({ children }: OutlineNode): OutlineNode[] => children.filter(({ role }) => role !== "line");

function panelOf(outline: OutlineNode, columns: number, width: number): Panel {
  const characters = Math.floor((width - 2 * PADDING) / CHARACTER_WIDTH);
  const header = [...titleLines(outline, characters), ...childLines(outline, characters)];
  const rows = chunked(cardsOf(outline).map((card) => ({ card, lines: cardLines(card) })), columns);
  const rowHeights = rows.map((row) => boxHeight(Math.max(...row.map(({ lines }) => lines.length))));
  const cardsHeight = rowHeights.reduce((sum, rowHeight) => sum + rowHeight + GAP, 0);
  const height = boxHeight(header.length) + (rows.length > 0 ? cardsHeight - GAP + PADDING : 0);
  return {
    height,
    draw(x, y) {
      const shapes = [drawBox(x, y, width, height, outline), ...drawTexts(header, x + PADDING, y + PADDING)];
      let top = y + boxHeight(header.length);
      rows.forEach((row, i) => {
        row.forEach(({ card, lines }, column) => {
          const left = x + PADDING + column * (CARD_WIDTH + GAP);
          shapes.push(drawBox(left, top, CARD_WIDTH, rowHeights[i]!, innermost(card)));
          shapes.push(...drawTexts(lines, left + PADDING, top + PADDING));
        });
        top += rowHeights[i]! + GAP;
      });
      return shapes;
    },
  };
}

const boxHeight = (lineCount: number): number => lineCount * LINE_HEIGHT + 2 * PADDING;

/** A card shows a port and the container behind it. */
function cardLines(card: OutlineNode): TextLine[] {
  const inner = innermost(card);
  const port = inner === card ? [] : titleLines(card, CARD_CHARACTERS, FAINT);
  return [...port, ...titleLines(inner, CARD_CHARACTERS), ...childLines(inner, CARD_CHARACTERS)];
}

function innermost(card: OutlineNode): OutlineNode {
  return card.children.find(({ role }) => role === "container") ?? card;
}

function titleLines({ kind, name, details, health }: OutlineNode, characters: number, faint?: string): TextLine[] {
  const [title = "", ...more] = wrapWords([`${kind} ${name}`.trim(), ...details], characters);
  const bad = health === "bad" ? BAD : undefined;
  return [
    { text: title, colour: bad ?? faint ?? TEXT, ...faint === undefined && { bold: true } },
    ...more.map((text) => ({ text, colour: bad ?? FAINT })),
  ];
}

function childLines({ children }: OutlineNode, characters: number): TextLine[] {
  return children.filter(({ role }) => role === "line").flatMap((child) => {
    const colour = child.health === "bad" ? BAD : COLOURS[child.kind] ?? TEXT;
    const own = lineTexts({ ...child, children: [] }, characters).map((text) => ({ text, colour }));
    return [...own, ...childLines(child, characters)];
  });
}

function chunked<T>(items: readonly T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(items.length / size) }, (_, i) => items.slice(i * size, (i + 1) * size));
}

function svgDocument(width: number, height: number, shapes: readonly string[]): string {
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" ` +
    `font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="${FONT_SIZE}" xml:space="preserve">`,
    "<title>Containers and their networks</title>",
    `<rect width="${width}" height="${height}" fill="#ffffff"/>`,
    ...shapes,
    "</svg>\n",
  ].join("\n");
}

/** One vertical line, and a short one to each panel. */
function trunk(levels: readonly number[]): string {
  const path = [`M${TRUNK_X} ${levels[0]}V${levels.at(-1)}`, ...levels.map((y) => `M${TRUNK_X} ${y}H${PANEL_X}`)];
  return `<path d="${path.join("")}" fill="none" stroke="${STROKE}" stroke-width="2"/>`;
}

function drawBox(
  x: number,
  y: number,
  width: number,
  height: number,
  { role, health }: OutlineNode,
): string {
  const stroke = health === "bad" ? `stroke="${BAD}" stroke-width="2"` : `stroke="${STROKE}"`;
  return `<rect x="${x}" y="${y}" width="${width}" height="${height}" rx="5" fill="${FILLS[role]}" ${stroke}/>`;
}

function drawTexts(lines: readonly TextLine[], x: number, y: number): string[] {
  return lines.map(({ text, colour, bold }, i) => {
    const length = (Bun.stringWidth(text) * CHARACTER_WIDTH).toFixed(1);
    const weight = bold ? ' font-weight="bold"' : "";
    const baseline = y + i * LINE_HEIGHT + FONT_SIZE;
    return `<text x="${x}" y="${baseline}" textLength="${length}" lengthAdjust="spacingAndGlyphs" ` +
      `fill="${colour}"${weight}>${escapeXml(text)}</text>`;
  });
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
