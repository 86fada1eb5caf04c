/** Garbage collection of stale attachments, and a restore that finds nothing missing. @module */
import { join } from "node:path";
import { createNetns } from "../../../ffi/netns/netns.ts";
import { firstProgram } from "../harness/invocation.ts";
import { WITHOUT_SYSTEM_BUS } from "../harness/node.ts";
import { runSuccessfully } from "../harness/process.ts";
import { CNI_PROGRAM } from "../repository.ts";
import { attachContainers } from "./populate.ts";
import { type BenchRow, row } from "./table.ts";
import { type BenchWorkspace, chainNetwork } from "./workspace.ts";

export function gcRows(bench: BenchWorkspace): readonly BenchRow[] {
  const count = bench.quick ? 50 : 500;
  const perAttachment = Array.from({ length: bench.quick ? 1 : 3 }, (_, round) => {
    using scope = new DisposableStack();
    const host = scope.use(createNetns());
    const network = { ...chainNetwork(bench, `gc${round}`), cniVersion: "1.1.0" };
    attachContainers({ ...bench, scope }, host, network, 0, count);
    const command = firstProgram(bench.run.command(network, "gc", {}));
    return host.run(() => runSuccessfully(command)).ms / count;
  });
  const note = "whole chain, 2 port maps each; the namespaces are still there, so every interface is to be deleted";
  const what = `\`cni run gc\` of ${count} dead attachments, for each`;
  return [row(what, "alone", perAttachment, undefined, { atMost: 2, note })];
}

export function restoreRows(workspace: BenchWorkspace): readonly BenchRow[] {
  // Other sections leave attachments in theirs.
  const bench = { ...workspace, cache: join(workspace.state, "restore-cache") };
  const count = bench.quick ? 50 : 1000;
  const host = bench.scope.use(createNetns());
  attachContainers(bench, host, chainNetwork(bench, "restore"), 0, count);
  const argv = [CNI_PROGRAM, "run", "restore", "--cache-dir", bench.cache, "--plugin-dir", bench.plugins, "--json"];
  const perAttachment = Array.from({ length: bench.quick ? 1 : 10 }, () => {
    const { ms, stdout } = host.run(() => runSuccessfully({ argv, env: WITHOUT_SYSTEM_BUS }));
    const { attachments } = JSON.parse(stdout) as { readonly attachments: readonly { readonly state: string }[] };
    if (attachments.length !== count || attachments.some(({ state }) => state !== "whole")) {
      throw new Error("Cannot measure a restore that finds something missing");
    }
    return ms / count;
  });
  const what = `\`cni run restore\` of ${count} attachments that miss nothing, for each`;
  return [row(what, "alone", perAttachment, undefined, { note: "whole chain, 2 port maps each" })];
}
