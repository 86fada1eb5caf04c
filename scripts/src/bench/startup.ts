/** Calls that change nothing: the cost of starting. @module */
import { join } from "node:path";
import { createNetns } from "../../../ffi/netns.ts";
import { interleave } from "./measure.ts";
import { pluginCommand } from "../harness/invocation.ts";
import { type ProcessCommand, runSuccessfully } from "../harness/process.ts";
import { newBenchContainer, plainNetwork } from "./network.ts";
import { type BenchWorkspace, REFERENCE_DIRECTORY } from "./workspace.ts";
import { type BenchRow, differenceRow, speedupRow, summarize } from "./table.ts";

export function startupRows(bench: BenchWorkspace): readonly BenchRow[] {
  using scope = new DisposableStack();
  const host = scope.use(createNetns());
  const version = (directory: string): ProcessCommand => ({
    argv: [join(directory, "bridge")],
    env: { CNI_COMMAND: "VERSION" },
    stdin: `{"cniVersion":"1.0.0"}`,
  });
  const newest = { ...plainNetwork(bench, "start0"), cniVersion: "1.1.0" };
  const container = newBenchContainer(scope, "c1", 0);
  const status = pluginCommand(newest, newest.plugins[0], "status", { container }, bench.plugins);
  const time = (command: ProcessCommand) => () => host.run(() => runSuccessfully(command)).ms;
  const samples = interleave(bench.rounds * 3, {
    version: time(version(bench.plugins)),
    empty: time({ argv: [bench.empty] }),
    status: time(status),
    reference: time(version(REFERENCE_DIRECTORY)),
    true: time({ argv: ["/bin/true"] }),
  });
  const ours = summarize("cni", samples.version);
  const empty = summarize("empty program", samples.empty);
  return [
    differenceRow({ what: "CNI_COMMAND=VERSION", ours, other: empty, goal: { atMost: 1 } }),
    differenceRow({
      what: "CNI_COMMAND=STATUS of bridge and host-local",
      ours: summarize("cni", samples.status),
      other: empty,
      goal: { atMost: 1 },
    }),
    speedupRow({ what: "VERSION against a Go plugin", ours, other: summarize("reference", samples.reference) }),
    speedupRow({ what: "VERSION against /bin/true", ours, other: summarize("/bin/true", samples.true) }),
  ];
}
