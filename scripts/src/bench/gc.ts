/** Garbage collection of attachments whose containers nobody knows any more. @module */
import { join } from "node:path";
import { writeFileSync } from "node:fs";
import { createNetns } from "../../../ffi/netns.ts";
import { interleave } from "./measure.ts";
import { type BenchNetwork, benchRuntimeContext, chainNetwork } from "./network.ts";
import { attachContainers } from "./populate.ts";
import type { BenchWorkspace } from "./workspace.ts";
import { runSuccessfully } from "./process.ts";
import { type BenchRow, plainRow, summarize } from "./table.ts";

export function gcRows(bench: BenchWorkspace): readonly BenchRow[] {
  const count = bench.quick ? 50 : 500;
  const rounds = bench.quick ? 1 : 3;
  const network = (round: number): BenchNetwork => ({ ...chainNetwork(bench, `gc${round}`), cniVersion: "1.1.0" });
  const { each } = interleave(rounds, { each: (round) => measureGc(bench, network(round), count) / count }, {
    warmUp: 0,
    minimumRounds: 1,
  });
  return [plainRow({
    what: `\`cni run gc\` of ${count} dead attachments, for each`,
    ours: summarize("cni", each),
    goal: { atMost: 2 },
    note: "whole chain, 2 port maps each; the namespaces are still there, so every interface is to be deleted",
  })];
}

function measureGc(bench: BenchWorkspace, network: BenchNetwork, count: number): number {
  using scope = new DisposableStack();
  const host = scope.use(createNetns());
  attachContainers(scope, bench, host, network, 0, count);
  const file = join(bench.state, `${network.name}.conflist`);
  writeFileSync(file, JSON.stringify(network));
  return host.run(() =>
    runSuccessfully({ argv: [bench.cni, "run", "gc", file, "--all", ...benchRuntimeContext(bench)] })
  ).ms;
}
