import { printable } from "../../spec/printable.ts";
import type { TraceEvent, TraceKind } from "../../inspect/effects/trace_event.ts";
import type { Screen, Style } from "../output/screen.ts";

const TIME_WIDTH = 9;
const STYLES: Partial<Record<TraceKind, Style>> = { plugin: "bold", program: "bold", undo: "yellow" };

interface EventLine {
  readonly text: string;
  /** It says why the event failed, and is never shortened. */
  readonly isFailure?: true;
}

export function formatTimeline(root: TraceEvent, startUpMs: number, screen: Screen): string {
  const title = `trace of ${root.name}: ${formatMs(root.ms)} ms, after ${formatMs(startUpMs)} ms of start-up`;
  const header = `${"at ms".padStart(TIME_WIDTH)}${"took ms".padStart(TIME_WIDTH)}`;
  const lines = [...screenLines(root.children, 0, screen)];
  return [screen.style("bold", title), header, ...lines].map((line) => `${line}\n`).join("");
}

const formatMs = (ms: number): string => ms.toFixed(2);

function* screenLines(events: readonly TraceEvent[], depth: number, screen: Screen): Generator<string> {
  for (const event of events) {
    for (const [i, { text, isFailure }] of eventLines(event).entries()) {
      const times = i > 0
        ? ""
        : `${formatMs(event.start).padStart(TIME_WIDTH)}${formatMs(event.ms).padStart(TIME_WIDTH)}`;
      const line = `${times.padEnd(TIME_WIDTH * 2 + 2 + depth * 2)}${printable(text)}`;
      yield isFailure ? screen.style("red", line) : styleLine(shorten(line, screen.columns), event, i, screen);
    }
    yield* screenLines(event.children, depth + 1, screen);
  }
}

function eventLines(event: TraceEvent): EventLine[] {
  const { kind, error } = event;
  const lines = eventTexts(event).map((text) => ({ text }));
  const isSilent = kind === "file" || kind === "sysctl" || kind === "socket";
  if (error === undefined || isSilent || hasFailedStep(event)) return lines;
  return [...lines, { text: `failed: ${error}`, isFailure: true }];
}

function eventTexts({ kind, name, details, netns }: TraceEvent): string[] {
  switch (kind) {
    case "netlink": {
      const [first = name, ...others] = details;
      return [`${first}${inNetns(netns)}`, ...others.map((text) => `  ${text}`)];
    }
    case "nft":
      return [`nft ${name}${inNetns(netns)}`, ...details.map((text) => `  ${text}`)];
    case "file":
    case "sysctl":
    case "socket":
      return [`${kind} ${name}: ${details.join(", ")}`];
    case "undo":
      return [[`undo: ${name}`, ...details].join(" ")];
    default:
      return [[name, ...details].join(" ")];
  }
}

/** The step that failed says why. */
const hasFailedStep = ({ kind, children }: TraceEvent): boolean =>
  kind !== "plugin" && children.some(({ error }) => error !== undefined);

const inNetns = (netns = ""): string => (netns === "" ? "" : ` in ${netns}`);

function shorten(line: string, columns = Infinity): string {
  return line.length <= columns ? line : `${line.slice(0, columns - 1)}…`;
}

function styleLine(line: string, { kind }: TraceEvent, index: number, screen: Screen): string {
  if (index > 0) return screen.style("dim", line);
  const style = STYLES[kind];
  return style ? screen.style(style, line) : line;
}
