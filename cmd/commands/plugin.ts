/**
 * `cni plugin`: a plugin without a link of its name.
 *
 * @module
 */
import { printStderr } from "../../ffi/sys/stdio.ts";
import type { AnyPlugin } from "../../plugins/lib/protocol/context.ts";
import { findPlugin, hasPlugin, loadPlugins, pluginNames } from "../../plugins/registry.ts";
import { suggestion } from "../../spec/suggest.ts";
import type { CliContext, Command } from "../command.ts";
import { UsageError } from "../options.ts";
import { formatPluginHelp, formatPluginList } from "../plugin_help.ts";
import { servePlugin } from "../serve_plugin.ts";

const plugin: Command = {
  name: "plugin",
  summary: "act as a plugin, called as engines do: CNI_* variables and stdin",
  arguments: [{ name: "PLUGIN", help: "the name of a plugin that is built in" }],
  options: [{ name: "service", help: "run the service of the plugin, until it ends" }],
  examples: [
    {
      command: "CNI_COMMAND=VERSION cni plugin bridge",
      about: "ask the bridge plugin for the versions that it speaks",
    },
    { command: "cni plugin bridge --help", about: "say what the bridge plugin is" },
  ],
  details: ([name = ""]) => hasPlugin(name) ? formatPluginHelp(name) : formatPluginList(),
  async run({ words: [name = ""], has }, context) {
    if (!hasPlugin(name)) {
      const hint = suggestion(name, pluginNames()) || `; there are ${pluginNames().join(", ")}`;
      throw new UsageError(`no plugin "${name}" is built in${hint}`);
    }
    if (!has("service")) return servePlugin(name);
    await loadPlugins([name]);
    await runService(findPlugin(name)!, context);
  },
};
export default plugin;

/** Runs the service of a plugin until it ends. @throws {UsageError} if the plugin has none */
export async function runService({ name, service }: AnyPlugin, { env }: Pick<CliContext, "env">): Promise<void> {
  if (!service) throw new UsageError(`plugin "${name}" has no service`);
  await service.run({ env, log: (message) => printStderr(`${name}: ${message}`) });
}
