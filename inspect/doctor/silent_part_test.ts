/** What doctor says of parts of the server by what they have left. */
import { expect, test } from "bun:test";
import { describeNodes } from "./checks/cluster.ts";
import { describePolicies } from "./checks/policy.ts";

const MINUTE_MS = 60_000;
const POLICIES = {
  node: "a",
  isSynced: true,
  policies: 3,
  unreadablePolicies: [],
  peers: 0,
  pods: 2,
  isolatedPods: 1,
  closedPods: [],
  sets: 0,
  elements: 0,
  cutFlows: 0,
  problems: [],
};
const NODES = { node: "a", isSynced: true, nodes: 2, mtu: 1450, problems: [] };

test("what a part knew hours ago is no good news", () => {
  const describe = (heard: { readonly heardAtMs?: number; readonly apiProblem?: string }) =>
    [...describePolicies({ ...POLICIES, ...heard }), ...describeNodes({ ...NODES, ...heard })]
      .map(({ severity, what }) => `${severity}: ${what}`);
  const heardAgo = (minutes: number) => ({ heardAtMs: Date.now() - minutes * MINUTE_MS });
  expect(describe(heardAgo(4))).toEqual([
    expect.stringContaining("ok: 3 policies are known, and isolate 1 of 2 pods"),
    "ok: routes lead to 2 other nodes",
  ]);
  const old = heardAgo(6);
  const since = new Date(old.heardAtMs).toISOString();
  expect(describe(old)).toEqual(
    ["policy", "cluster"].map((part) =>
      `warning: the server's part "${part}" has heard nothing since ${since}: the kernel has what it had then`
    ),
  );
  // It runs, and says so itself.
  for (const what of describe({ ...old, apiProblem: "it is away" })) expect(what).not.toContain("has heard nothing");
});
