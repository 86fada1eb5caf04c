/** Garbage collection of stale attachments. @module */
import { createNetns } from "../../../ffi/netns.ts";
import { interleave } from "./measure.ts";
import { firstProgram } from "../harness/invocation.ts";
import type { Network } from "../harness/networks.ts";
import { runSuccessfully } from "../harness/process.ts";
import { chainNetwork } from "./network.ts";
import { attachContainers } from "./populate.ts";
import type { BenchWorkspace } from "./workspace.ts";
import { type BenchRow, plainRow, summarize } from "./table.ts";

export function gcRows(bench: BenchWorkspace): readonly BenchRow[] {
  const count = bench.quick ? 50 : 500;
  const rounds = bench.quick ? 1 : 3;
  const network = (round: number): Network => ({ ...chainNetwork(bench, `gc${round}`), cniVersion: "1.1.0" });
  const { perAttachment } = interleave(rounds, {
    perAttachment: (round) => measureGc(bench, network(round), count) / count,
  }, {
    warmUp: 0,
    minimumRounds: 1,
  });
  return [plainRow({
    what: `\`cni run gc\` of ${count} dead attachments, for each`,
    ours: summarize("cni", perAttachment),
    goal: { atMost: 2 },
    note: "whole chain, 2 port maps each; the namespaces are still there, so every interface is to be deleted",
  })];
}

function measureGc(bench: BenchWorkspace, network: Network, count: number): number {
  using scope = new DisposableStack();
  const host = scope.use(createNetns());
  attachContainers(scope, bench, host, network, 0, count);
  const command = firstProgram(bench.run.command(network, "gc", {}));
  return host.run(() => runSuccessfully(command)).ms;
}
