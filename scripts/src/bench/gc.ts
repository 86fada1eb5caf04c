/** Garbage collection of attachments whose containers nobody knows any more. @module */
import { join } from "node:path";
import { writeFileSync } from "node:fs";
import { createNetns } from "../../../ffi/netns.ts";
import { interleave } from "./measure.ts";
import { type Network, runOptions, wholeChain } from "./network.ts";
import { attachAll } from "./populate.ts";
import type { Bench } from "./workspace.ts";
import { must } from "./process.ts";
import { figure, plain, type Row } from "./table.ts";

export function collectRows(bench: Bench): readonly Row[] {
  const count = bench.quick ? 50 : 500;
  const rounds = bench.quick ? 1 : 3;
  const network = (round: number): Network => ({ ...wholeChain(bench, `gc${round}`), cniVersion: "1.1.0" });
  const { each } = interleave(rounds, { each: (round) => collect(bench, network(round), count) / count }, {
    warmUp: 0,
    always: 1,
  });
  return [plain({
    what: `\`cni run gc\` of ${count} dead attachments, for each`,
    ours: figure("cni", each),
    goal: { atMost: 2 },
    note: "whole chain, 2 port maps each; the namespaces are still there, so every interface is to be deleted",
  })];
}

function collect(bench: Bench, network: Network, count: number): number {
  using scope = new DisposableStack();
  const host = scope.use(createNetns());
  attachAll(scope, bench, host, network, 0, count);
  const file = join(bench.state, `${network.name}.conflist`);
  writeFileSync(file, JSON.stringify(network));
  return host.run(() => must({ argv: [bench.cni, "run", "gc", file, "--all", ...runOptions(bench)] })).ms;
}
