/** Calls that change nothing: what starting costs. @module */
import { join } from "node:path";
import { createNetns } from "../../../ffi/netns.ts";
import { interleave } from "./measure.ts";
import { plainNetwork, pluginCall } from "./network.ts";
import { type Bench, REFERENCE } from "./workspace.ts";
import { type Command, must } from "./process.ts";
import { above, faster, figure, type Row } from "./table.ts";

export function startRows(bench: Bench): readonly Row[] {
  using host = createNetns();
  const version = (directory: string): Command => ({
    argv: [join(directory, "bridge")],
    env: { CNI_COMMAND: "VERSION" },
    stdin: `{"cniVersion":"1.0.0"}`,
  });
  const newest = { ...plainNetwork(bench, "start0"), cniVersion: "1.1.0" };
  const status = pluginCall(bench.plugins, newest, "bridge", "STATUS", { netns: host, id: "c1", number: 0 });
  const time = (command: Command) => () => host.run(() => must(command)).ms;
  const samples = interleave(bench.rounds * 3, {
    version: time(version(bench.plugins)),
    empty: time({ argv: [bench.empty] }),
    status: time(status),
    reference: time(version(REFERENCE)),
    true: time({ argv: ["/bin/true"] }),
  });
  const ours = figure("cni", samples.version);
  const empty = figure("empty program", samples.empty);
  return [
    above({ what: "CNI_COMMAND=VERSION", ours, other: empty, goal: { atMost: 1 } }),
    above({
      what: "CNI_COMMAND=STATUS of bridge and host-local",
      ours: figure("cni", samples.status),
      other: empty,
      goal: { atMost: 1 },
    }),
    faster({ what: "VERSION against a Go plugin", ours, other: figure("reference", samples.reference) }),
    faster({ what: "VERSION against /bin/true", ours, other: figure("/bin/true", samples.true) }),
  ];
}
