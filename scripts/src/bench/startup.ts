/** Calls that change nothing: the cost of starting. @module */
import { REFERENCE_DIRECTORY } from "../../../testing/reference_host.ts";
import { linkSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { createNetns, type Netns } from "../../../ffi/netns/netns.ts";
import { pluginCommand } from "../harness/invocation.ts";
import { type ProcessCommand, runSuccessfully } from "../harness/process.ts";
import { hostLibraries } from "../image/main.ts";
import { writeTree } from "../release/tar.ts";
import { CNI_PROGRAM, newScratchDirectory } from "../repository.ts";
import { interleave } from "./measure.ts";
import { type BenchRow, row } from "./table.ts";
import { type BenchWorkspace, plainNetwork } from "./workspace.ts";

export const versionCommand = (directory: string): ProcessCommand => ({
  argv: [join(directory, "bridge")],
  env: { CNI_COMMAND: "VERSION" },
  stdin: `{"cniVersion":"1.0.0"}`,
});

export function statusCommand(bench: BenchWorkspace, directory: string): ProcessCommand {
  const newest = { ...plainNetwork(bench, "start0"), cniVersion: "1.1.0" };
  return pluginCommand(newest, newest.plugins[0]!, "status", {}, directory);
}

/** The time of a command on a host, each round anew. */
export const startupSide = (host: Netns) => (command: ProcessCommand) => (): number =>
  host.run(() => runSuccessfully(command)).ms;

/** One file with two names: two copies would differ by their pages. One has glibc beside it, as a release has. */
function releasedPrograms({ scope }: BenchWorkspace) {
  const scratch = scope.use(newScratchDirectory(dirname(CNI_PROGRAM)));
  const [alone, released] = [join(scratch.path, "alone"), join(scratch.path, "released")];
  for (const directory of [alone, released]) {
    mkdirSync(directory);
    linkSync(CNI_PROGRAM, join(directory, "bridge"));
  }
  writeTree(hostLibraries(CNI_PROGRAM), released);
  return { alone, released };
}

export function startupRows(bench: BenchWorkspace): readonly BenchRow[] {
  const time = startupSide(bench.scope.use(createNetns()));
  const samples = interleave(bench.rounds * 3, {
    version: time(versionCommand(bench.plugins)),
    empty: time({ argv: [bench.empty] }),
    status: time(statusCommand(bench, bench.plugins)),
    reference: time(versionCommand(REFERENCE_DIRECTORY)),
    true: time({ argv: ["/bin/true"] }),
  });
  const { alone, released } = releasedPrograms(bench);
  const pair = interleave(bench.rounds * 10, {
    released: time(versionCommand(released)),
    alone: time(versionCommand(alone)),
  });
  const ours = samples["version"]!;
  const empty = ["empty program", samples["empty"]!] as const;
  return [
    row("CNI_COMMAND=VERSION", "more", ours, empty, { atMost: 1 }),
    row("VERSION with glibc beside the program, as in a release", "more", pair["released"]!, [
      "host's glibc",
      pair["alone"]!,
    ], { atMost: 0.3 }),
    row("CNI_COMMAND=STATUS of bridge and host-local", "more", samples["status"]!, empty, { atMost: 1 }),
    row("VERSION against a Go plugin", "faster", ours, ["reference", samples["reference"]!]),
    row("VERSION against /bin/true", "faster", ours, ["/bin/true", samples["true"]!]),
  ];
}
