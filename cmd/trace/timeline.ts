import { printable } from "../../spec/printable.ts";
import type { TraceEvent } from "../../inspect/effects/trace_event.ts";
import type { Screen } from "../output/screen.ts";

const TIME_WIDTH = 9;
/** Such a line is never shortened. */
const FAILED = "failed: ";

/** A line for each event, with its begin and its time in milliseconds. */
export function formatTimeline(root: TraceEvent, startUpMs: number, screen: Screen): string {
  const title = `trace of ${root.name}: ${formatMs(root.ms)} ms, after ${formatMs(startUpMs)} ms of start-up`;
  const header = `${"at ms".padStart(TIME_WIDTH)}${"took ms".padStart(TIME_WIDTH)}`;
  const lines = [...screenLines(root.children, 0, screen)];
  return [screen.style("bold", title), header, ...lines].map((line) => `${line}\n`).join("");
}

const formatMs = (ms: number): string => ms.toFixed(2);

function* screenLines(events: readonly TraceEvent[], depth: number, screen: Screen): Generator<string> {
  for (const event of events) {
    for (const [i, text] of eventTexts(event).entries()) {
      const times = i > 0
        ? ""
        : `${formatMs(event.start).padStart(TIME_WIDTH)}${formatMs(event.ms).padStart(TIME_WIDTH)}`;
      const line = `${times.padEnd(TIME_WIDTH * 2 + 2 + depth * 2)}${printable(text)}`;
      yield styleLine(text.startsWith(FAILED) ? line : shorten(line, screen.columns), event, i, screen);
    }
    yield* screenLines(event.children, depth + 1, screen);
  }
}

/** The first line and those that continue it. */
function eventTexts(event: TraceEvent): string[] {
  const { kind, name, details, netns, error } = event;
  const failure = error === undefined || hasFailedStep(event) ? [] : [`${FAILED}${error}`];
  switch (kind) {
    case "netlink": {
      const [first = name, ...others] = details;
      return [`${first}${inNetns(netns)}`, ...others.map((text) => `  ${text}`), ...failure];
    }
    case "nft":
      return [`nft ${name}${inNetns(netns)}`, ...details.map((text) => `  ${text}`), ...failure];
    case "file":
    case "sysctl":
    case "socket":
      return [`${kind} ${name}: ${details.join(", ")}`];
    case "undo":
      return [[`undo: ${name}`, ...details].join(" "), ...failure];
    default:
      return [[name, ...details].join(" "), ...failure];
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
  if (line.trimStart().startsWith(FAILED)) return screen.style("red", line);
  if (index > 0) return screen.style("dim", line);
  return kind === "plugin" || kind === "program"
    ? screen.style("bold", line)
    : kind === "undo"
    ? screen.style("yellow", line)
    : line;
}
