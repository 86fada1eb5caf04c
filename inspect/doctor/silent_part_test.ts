/** What doctor says of parts of the server by what they have left. */
import { expect, test } from "bun:test";
import type { StatusOrigin } from "../../cluster/status_file.ts";
import { ownIdentity } from "../../ffi/sys/process_identity.ts";
import { describeNodes } from "./checks/cluster.ts";
import { describePolicies } from "./checks/policy.ts";

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

test("what a part knew before it ended, or fell silent, is no good news", () => {
  const describe = (origin: StatusOrigin & { readonly problems?: readonly string[] }) =>
    [...describePolicies({ ...POLICIES, ...origin }), ...describeNodes({ ...NODES, ...origin })]
      .map(({ severity, what }) => `${severity}: ${what}`);
  const warnings = (what: string) =>
    ["policy", "cluster"].map((part) => `warning: cni serve's part "${part}" ${what}: the kernel has what it had then`);
  const process = ownIdentity();
  const problems = ["it failed"];
  const ended = { ...process, startTicks: process.startTicks - 1 };
  const [now, before] = [Date.now(), Date.now() - 61_000];
  const since = `since ${new Date(before).toISOString()}`;
  expect(describe({ process, writtenAtMs: now })).toEqual([
    expect.stringContaining("ok: 3 policies are known, and isolate 1 of 2 pods"),
    "ok: routes lead to 2 other nodes",
  ]);
  expect(describe({ process: ended, writtenAtMs: before, problems })).toEqual(warnings(`has not run ${since}`));
  expect(describe({ process, writtenAtMs: before })).toEqual(warnings(`has said nothing ${since}`));
  expect(describe({})).toEqual(warnings("has not run"));
});
