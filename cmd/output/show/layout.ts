/**
 * Where the boxes and wires of a topology are, in units of SVG.
 *
 * The host's frame is on the left: uplinks on top, devices below. Right of each device are its containers, in columns.
 * Left of each column is a gutter: there wires go up and down, each device's in a lane. No wire crosses a box.
 */
import type { BoxRow, Topology, TopologyBox, Wire } from "./topology.ts";
import { wrapWords } from "./wrap.ts";

export const FONT_SIZE = 12;
export const LABEL_FONT_SIZE = 10;
// A monospaced font has it in parts of its size.
export const CHARACTER_WIDTH = 0.6;
export const LINE_HEIGHT = 16;
export const PADDING = 10;
const MARGIN = 16;
const GAP = 16;
const LANE = 10;
const MAX_CHARACTERS = 40;
// Common screens and pages are so many times as wide as high.
const BEST_RATIO = 1.4;
// From the top of a device to the wire of published ports, to its own, and to its containers.
const PUBLISHED_TOP = 8;
const WIRE_TOP = 18;
const CARDS_TOP = 28;
// An arrow's head, and what is left free around a label.
const LABEL_MARGIN = 14;

interface Rectangle {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

export interface TextLine {
  readonly text: string;
  readonly tone: BoxRow["tone"];
  readonly wire?: Wire;
}

export interface PlacedBox extends Rectangle {
  readonly box: TopologyBox;
  readonly lines: readonly TextLine[];
}

export interface PlacedWire {
  readonly wire: Wire;
  /** Corners, from the device or the outside to the container. */
  readonly points: readonly (readonly [x: number, y: number])[];
}

export interface Layout {
  readonly width: number;
  readonly height: number;
  readonly frame: Rectangle;
  readonly uplinks: readonly PlacedBox[];
  /** The order is that of {@linkcode Topology.devices}. */
  readonly devices: readonly PlacedBox[];
  readonly containers: readonly PlacedBox[];
  readonly tables: readonly PlacedBox[];
  readonly wires: readonly PlacedWire[];
}

export function layoutOf(topology: Topology): Layout {
  const sections = sectionsOf(topology);
  const hostWidth = boxWidth([...topology.uplinks, ...topology.devices]);
  const frameWidth = hostWidth + 3 * PADDING + LANE;
  const columns = columnsOf(sections, columnCount(topology, frameWidth), MARGIN + frameWidth);
  const hostX = MARGIN + LANE + 2 * PADDING;

  const uplinks = stacked(topology.uplinks, hostX, MARGIN + PADDING + LINE_HEIGHT, hostWidth);
  const placed = placeSections(sections, columns, bottomOf(uplinks, MARGIN + PADDING + LINE_HEIGHT), hostX, hostWidth);
  const devices = placed.flatMap(({ device }) => device ?? []);
  const containers = placed.flatMap(({ cards }) => cards);
  const frameBottom = bottomOf([...uplinks, ...devices], MARGIN + 2 * LINE_HEIGHT + PADDING) - GAP + PADDING;
  const width = Math.max(MARGIN + frameWidth, ...containers.map((card) => card.x + card.width)) + MARGIN;
  const contentBottom = Math.max(frameBottom, ...containers.map((card) => card.y + card.height));
  const tables = stacked(topology.tables, MARGIN, contentBottom + GAP, width - 2 * MARGIN);
  const entrance = [...uplinks, ...devices].find(({ box }) => box.role === "uplink") ?? devices[0];
  return {
    width,
    height: bottomOf(tables, contentBottom + GAP) - GAP + MARGIN,
    frame: { x: MARGIN, y: MARGIN, width: frameWidth, height: frameBottom - MARGIN },
    uplinks,
    devices,
    containers,
    tables,
    wires: containers.flatMap((card) => wiresTo(card, columns, entrance, devices)),
  };
}

function columnCount({ containers }: Topology, frameWidth: number): number {
  const cardWidth = boxWidth(containers) + CARDS_TOP + 10 * LANE;
  const cardHeight = 2 * PADDING + GAP + mean(containers.map(({ rows }) => rows.length)) * LINE_HEIGHT;
  let count = 1;
  while (frameWidth + count * cardWidth < BEST_RATIO * containers.length / count * cardHeight) count++;
  return count;
}

const mean = (numbers: readonly number[]): number =>
  numbers.reduce((sum, each) => sum + each, 0) / (numbers.length || 1);

/** The device is that of the containers' first network. */
interface Section {
  readonly device?: TopologyBox;
  readonly cards: readonly TopologyBox[];
}

/** Containers without a wire are last. */
function sectionsOf({ devices, containers }: Topology): Section[] {
  const byDevice = Map.groupBy(containers, firstDevice);
  return [...devices, undefined].map((device, i) => ({
    ...device && { device },
    cards: byDevice.get(device ? i : undefined) ?? [],
  }));
}

const firstDevice = (card: TopologyBox): Wire["from"] | undefined => linksOf(card)[0]?.from;
const wiresOf = ({ rows }: TopologyBox): Wire[] => rows.flatMap(({ wire }) => wire ?? []);
const linksOf = (card: TopologyBox): Wire[] => wiresOf(card).filter(({ from }) => from !== "outside");

/** The gutter is on its left. */
interface Column {
  readonly cardX: number;
  readonly cardWidth: number;
  laneX(card: TopologyBox, from: Wire["from"]): number;
}

function columnsOf(sections: readonly Section[], count: number, left: number): Column[] {
  const cardWidth = boxWidth(sections.flatMap(({ cards }) => cards));
  let x = left;
  return Array.from({ length: count }, (_, column) => {
    const cards = sections.flatMap((section) => section.cards.filter((_, i) => i % count === column));
    // Calls from outside have the first lane, first networks the second.
    const others = [...new Set(cards.flatMap((card) => linksOf(card).slice(1).map(({ from }) => from)))];
    const gutter = x + GAP;
    const labels = cards.flatMap(wiresOf).map(({ label }) => Bun.stringWidth(label));
    const labelWidth = Math.max(0, ...labels) * LABEL_FONT_SIZE * CHARACTER_WIDTH + LABEL_MARGIN;
    const cardX = gutter + (1 + others.length) * LANE + labelWidth;
    x = cardX + cardWidth;
    return {
      cardX,
      cardWidth,
      laneX(card, from) {
        if (from === "outside") return gutter;
        return gutter + LANE * (from === firstDevice(card) ? 1 : 2 + others.indexOf(from));
      },
    };
  });
}

interface PlacedSection {
  readonly device?: PlacedBox;
  readonly cards: readonly PlacedBox[];
}

function placeSections(
  sections: readonly Section[],
  columns: readonly Column[],
  top: number,
  hostX: number,
  hostWidth: number,
): PlacedSection[] {
  let y = top;
  return sections.map(({ device, cards }) => {
    const placed = placeCards(cards, columns, y + CARDS_TOP);
    const cardsBottom = bottomOf(placed, y) - GAP;
    if (!device) return { cards: placed };
    const own = placeBox(device, hostX, y, hostWidth);
    // A device is as high as its containers, like a bar that they hang on.
    const height = Math.max(own.height, cardsBottom - y);
    y += height + GAP;
    return { device: { ...own, height }, cards: placed };
  });
}

function placeCards(cards: readonly TopologyBox[], columns: readonly Column[], top: number): PlacedBox[] {
  let y = top;
  return chunked(cards, columns.length).flatMap((row) => {
    const placed = row.map((card, i) => placeBox(card, columns[i]!.cardX, y, columns[i]!.cardWidth));
    y = bottomOf(placed, y);
    return placed;
  });
}

function chunked<T>(items: readonly T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(items.length / size) }, (_, i) => items.slice(i * size, (i + 1) * size));
}

function stacked(boxes: readonly TopologyBox[], x: number, top: number, width: number): PlacedBox[] {
  let y = top;
  return boxes.map((box) => {
    const placed = placeBox(box, x, y, width);
    y += placed.height + GAP;
    return placed;
  });
}

function placeBox(box: TopologyBox, x: number, y: number, width: number): PlacedBox {
  const lines = linesOf(box, Math.floor((width - 2 * PADDING) / (FONT_SIZE * CHARACTER_WIDTH)));
  return { x, y, width, height: lines.length * LINE_HEIGHT + 2 * PADDING, box, lines };
}

const bottomOf = (boxes: readonly Rectangle[], otherwise: number): number =>
  Math.max(otherwise, ...boxes.map(({ y, height }) => y + height + GAP));

function boxWidth(boxes: readonly TopologyBox[]): number {
  const lines = boxes.flatMap((box) => linesOf(box, MAX_CHARACTERS));
  const characters = Math.max(12, ...lines.map(({ text }) => Bun.stringWidth(text)));
  return Math.ceil(characters * FONT_SIZE * CHARACTER_WIDTH) + 2 * PADDING;
}

function linesOf({ rows }: TopologyBox, characters: number): TextLine[] {
  return rows.flatMap(({ texts, tone, wire }) =>
    wrapWords(texts, characters).map((text, i) => ({ text, tone, ...i === 0 && wire && { wire } }))
  );
}

export const lineY = ({ y }: Rectangle, line: number): number => y + PADDING + (line + 0.5) * LINE_HEIGHT;

function wiresTo(
  card: PlacedBox,
  columns: readonly Column[],
  entrance: PlacedBox | undefined,
  devices: readonly PlacedBox[],
): PlacedWire[] {
  const column = columns.find(({ cardX }) => cardX === card.x)!;
  return card.lines.flatMap(({ wire }, i): PlacedWire[] => {
    if (!wire) return [];
    const isOutside = wire.from === "outside";
    const start = isOutside ? entrance : devices[wire.from as number];
    const x = column.laneX(card.box, wire.from);
    const y = lineY(card, i);
    // Without an uplink or a device, a short arrow.
    if (!start) return [{ wire, points: [[x, y], [card.x, y]] }];
    const startY = start.y + (isOutside ? PUBLISHED_TOP : WIRE_TOP);
    return [{ wire, points: [[start.x + start.width, startY], [x, startY], [x, y], [card.x, y]] }];
  });
}
