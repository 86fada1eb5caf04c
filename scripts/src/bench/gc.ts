import { createNetns } from "../../../ffi/netns.ts";
import { firstProgram } from "../harness/invocation.ts";
import { runSuccessfully } from "../harness/process.ts";
import { attachContainers } from "./populate.ts";
import { type BenchRow, row } from "./table.ts";
import { type BenchWorkspace, chainNetwork } from "./workspace.ts";

export function gcRows(bench: BenchWorkspace): readonly BenchRow[] {
  const count = bench.quick ? 50 : 500;
  const perAttachment = Array.from({ length: bench.quick ? 1 : 3 }, (_, round) => {
    using scope = new DisposableStack();
    const host = scope.use(createNetns());
    const network = { ...chainNetwork(bench, `gc${round}`), cniVersion: "1.1.0" };
    attachContainers(scope, bench, host, network, 0, count);
    const command = firstProgram(bench.run.command(network, "gc", {}));
    return host.run(() => runSuccessfully(command)).ms / count;
  });
  const note = "whole chain, 2 port maps each; the namespaces are still there, so every interface is to be deleted";
  return [
    row(`\`cni run gc\` of ${count} dead attachments, for each`, "alone", perAttachment, undefined, {
      atMost: 2,
      note,
    }),
  ];
}
