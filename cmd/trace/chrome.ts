/**
 * Viewers such as Perfetto read these traces. @see "Trace Event Format", the JSON array format and complete events
 * @module
 */
import type { TraceEvent } from "../../inspect/effects/trace_event.ts";

interface ChromeEvent {
  readonly name: string;
  readonly cat: string;
  readonly ph: "X" | "M";
  readonly ts: number;
  readonly dur?: number;
  readonly pid: number;
  readonly tid: number;
  readonly args: object;
}

/** @param startTime of the root, in milliseconds since 1970: calls of one file share a timeline */
export function toChromeEvents(root: TraceEvent, startTime: number, startUpMs: number, pid: number): ChromeEvent[] {
  const ids = { pid, tid: pid };
  const complete = (event: Omit<TraceEvent, "children">): ChromeEvent => ({
    name: event.name,
    cat: event.kind,
    ph: "X",
    ts: (startTime + event.start) * 1000,
    dur: event.ms * 1000,
    ...ids,
    args: {
      ...event.netns && { netns: event.netns },
      ...event.details.length > 0 && { details: event.details },
      ...event.error !== undefined && { error: event.error },
    },
  });
  const all = (event: TraceEvent): ChromeEvent[] => [complete(event), ...event.children.flatMap(all)];
  const startUp: Omit<TraceEvent, "children"> = {
    kind: "call",
    name: "start-up",
    details: [],
    start: -startUpMs,
    ms: startUpMs,
  };
  return [
    { name: "process_name", cat: "__metadata", ph: "M", ts: 0, ...ids, args: { name: root.name } },
    complete(startUp),
    ...all(root),
  ];
}

export function formatChromeFile(events: readonly ChromeEvent[]): string {
  return `[\n${events.map((event) => JSON.stringify(event)).join(",\n")}\n]\n`;
}

/** The format makes the final bracket optional, so that more can follow. */
export function formatChromePart(events: readonly ChromeEvent[], isFirst: boolean): string {
  return `${isFirst ? "[\n" : ",\n"}${events.map((event) => JSON.stringify(event)).join(",\n")}`;
}
