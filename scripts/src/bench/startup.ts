/** Calls that change nothing: what starting costs. @module */
import { join } from "node:path";
import { createNetns } from "../../../ffi/netns.ts";
import { interleave } from "./measure.ts";
import { plainNetwork, pluginCall } from "./network.ts";
import { type BenchWorkspace, REFERENCE_DIRECTORY } from "./workspace.ts";
import { type ProcessCommand, runSuccessfully } from "./process.ts";
import { type BenchRow, differenceRow, speedupRow, summarize } from "./table.ts";

export function startupRows(bench: BenchWorkspace): readonly BenchRow[] {
  using host = createNetns();
  const version = (directory: string): ProcessCommand => ({
    argv: [join(directory, "bridge")],
    env: { CNI_COMMAND: "VERSION" },
    stdin: `{"cniVersion":"1.0.0"}`,
  });
  const newest = { ...plainNetwork(bench, "start0"), cniVersion: "1.1.0" };
  const status = pluginCall(bench.plugins, newest, "bridge", "STATUS", { netns: host, id: "c1", number: 0 });
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
