import { expect, test } from "bun:test";
import type { TraceEvent } from "../../inspect/effects/trace_event.ts";
import { formatTimeline } from "./timeline.ts";

const event = (more: Partial<TraceEvent>): TraceEvent => ({
  ...{ kind: "step", name: "", details: [], start: 1, ms: 2, children: [] },
  ...more,
});

test("formatTimeline() shortens what was done to a terminal's width, and never what failed", () => {
  const error = "Cannot carry out RTM_NEWROUTE: Network is unreachable";
  const request = event({ kind: "netlink", details: ["RTM_NEWROUTE dst=0.0.0.0/0 gateway=10.0.0.1"], error });
  const root = event({ name: "cni run add", children: [request] });
  const screen = { isTerminal: true, columns: 40, style: (_: unknown, text: string) => text };
  expect(formatTimeline(root, 3, screen).split("\n").slice(2)).toEqual([
    "     1.00     2.00  RTM_NEWROUTE dst=0.…",
    `                    failed: ${error}`,
    "",
  ]);
});
