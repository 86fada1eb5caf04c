/** Records what a call does: plugins, steps, netlink requests, files, programs. @module */
import { CURRENT_NETNS_PATH } from "../../ffi/netns/netns.ts";
import { type Activity, observeActivities, type RequestsActivity } from "../../ffi/sys/observer.ts";
import { formatNetlinkRequest } from "./format_request.ts";
import type { TraceCursor, TraceEvent } from "./trace_event.ts";
import { isSystemCallEvent, traceSystemCalls } from "./trace_system_calls.ts";

export interface Trace extends Disposable {
  /** The whole call; its time ends with the scope. */
  readonly root: TraceEvent;
  /** Milliseconds since the beginning of 1970. */
  readonly startTime: number;
}

/** One trace of this process at a time. @param name `bridge ADD` */
export function startTrace(name: string): Trace {
  const origin = performance.now();
  const now = () => performance.now() - origin;
  const root: TraceEvent = { kind: "call", name, details: [], start: 0, ms: 0, children: [] };
  const cursor: TraceCursor = { current: root, now };
  const activities = observeActivities((activity, run) => record(cursor, activity, run));
  const calls = traceSystemCalls(cursor);
  return {
    root,
    startTime: performance.timeOrigin + origin,
    [Symbol.dispose]() {
      activities[Symbol.dispose]();
      calls[Symbol.dispose]();
      root.ms = now();
    },
  };
}

function record<T>(cursor: TraceCursor, activity: Activity, run: () => T): T {
  const parent = cursor.current;
  // Sending and receiving are a part of the request.
  if (activity.kind === "step" && ["netlink", "nft"].includes(parent.kind)) return run();
  const event: TraceEvent = { ...describeActivity(activity), start: cursor.now(), ms: 0, children: [] };
  const countAnswers = activity.kind === "requests" ? answerCounter(activity) : () => 0;
  parent.children.push(event);
  cursor.current = event;
  try {
    return run();
  } catch (error) {
    event.error = error instanceof Error ? error.message : String(error);
    throw error;
  } finally {
    event.ms = cursor.now() - event.start;
    cursor.current = parent;
    const answers = countAnswers();
    const mayBeAbsent = activity.kind === "requests" && activity.hasOneReply && !event.error;
    if (answers > 0 || mayBeAbsent) event.details.push(`answers: ${answers}`);
    if (isRedundant(event)) parent.children.splice(-1, 1, ...event.children);
  }
}

function answerCounter(activity: RequestsActivity): () => number {
  const { onMessage } = activity;
  let count = 0;
  activity.onMessage = (payload, index) => {
    count++;
    onMessage(payload, index);
  };
  return () => count;
}

/** A step whose purpose repeats what its system calls say, or an undo with nothing to undo. */
function isRedundant({ kind, children }: TraceEvent): boolean {
  return kind === "step"
    ? children.length > 0 && children.every(isSystemCallEvent)
    : kind === "undo" && children.length === 0;
}

function describeActivity(activity: Activity): Pick<TraceEvent, "kind" | "name" | "netns" | "details"> {
  switch (activity.kind) {
    case "plugin": {
      const { plugin, command, network, containerId, ifname, undoesAdd } = activity;
      const details = Object.entries({ network, containerId, ifname }).flatMap(([key, value]) =>
        value === "" ? [] : [`${key}=${value}`]
      );
      return { kind: undoesAdd ? "undo" : "plugin", name: `${plugin} ${command}`, details };
    }
    case "program":
      return { kind: "program", name: `${activity.path} ${activity.command}`, details: [] };
    case "step":
      return { kind: "step", name: textOf(activity.purpose), details: [] };
    case "dbus":
      return { kind: "dbus", name: `${activity.interface}.${activity.member}`, details: activity.args.map(String) };
    case "server":
      return { kind: "step", name: activity.sentence, details: [activity.socketPath] };
    case "query":
      return { kind: "step", name: `ask "${activity.socketPath}"`, details: [] };
    case "undo":
      return { kind: "undo", name: "undo what was done", details: [] };
    case "requests":
      return describeRequests(activity);
  }
}

function textOf(purpose: string | (() => string)): string {
  return typeof purpose === "string" ? purpose : purpose();
}

function describeRequests(
  { netns, requests }: Extract<Activity, { readonly kind: "requests" }>,
): Pick<TraceEvent, "kind" | "name" | "netns" | "details"> {
  const isBatchEdge = ({ op }: { readonly op: { readonly name: string } }) => op.name.startsWith("BATCH_");
  const isTransaction = requests.some(isBatchEdge);
  const changes = requests.filter((request) => !isBatchEdge(request));
  const isCheck = isTransaction && requests.at(-1)?.op.name !== "BATCH_END";
  return {
    kind: isTransaction ? "nft" : "netlink",
    name: isTransaction ? `transaction${isCheck ? " (only checked)" : ""}` : changes[0]?.op.name ?? "",
    netns: netns === CURRENT_NETNS_PATH ? "host" : netns,
    details: changes.map(formatNetlinkRequest),
  };
}
