import { loadPlugins } from "../../../plugins/registry.ts";
import { findNetwork } from "../../../networks/find.ts";
import { type RemovalReport, removeNetworks } from "../../../networks/remove.ts";
import { NETWORKS_ARGUMENT, PLUGIN_CALL_OPTIONS, PRINT_JSON_OPTION } from "../../arguments/network.ts";
import { printRemoval } from "../../arguments/removal.ts";
import { absolutePath } from "../../arguments/path.ts";
import { confDirectory, DRY_RUN_OPTION, DRY_RUN_OPTIONS, log, openRuntime } from "../../arguments/runtime.ts";
import type { Command } from "../../command.ts";

const rm: Command = {
  name: "rm",
  summary: "remove networks that no container uses",
  description: `Removes the configuration, the bridge unless something else uses it, rules, and host-local's state.`,
  arguments: [NETWORKS_ARGUMENT],
  options: [
    { name: "force", short: "f", help: "detach its containers first, and go on after failures" },
    ...DRY_RUN_OPTIONS,
    ...PLUGIN_CALL_OPTIONS,
    PRINT_JSON_OPTION,
  ],
  examples: [
    { command: "cni network rm web", about: "remove a network without containers" },
    { command: "cni network rm web --force", about: "detach all containers of a network, and remove it" },
  ],
  async run(input, context) {
    const runtime = openRuntime(input, context);
    await loadPlugins();
    const directory = confDirectory(input, context);
    const words = input.words.map((word) => word.includes("/") ? absolutePath(word, context) : word);
    const networks = [...new Set(words)].map((word) => findNetwork(runtime, directory, word, log));
    const remove = (report: RemovalReport) =>
      removeNetworks(networks, { runtime, directory, log }, input.has("force"), report);
    if (input.has(DRY_RUN_OPTION.name)) {
      const { printDryRun } = await import("../../arguments/dry_run.ts");
      return await printDryRun(input, context, () => remove(() => {}));
    }
    return printRemoval(input, remove);
  },
};
export default rm;
