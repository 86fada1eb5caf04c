/**
 * `cni plugin`: a plugin without a link of its name.
 *
 * @module
 */
import { hasPlugin, pluginNames } from "../../plugins/registry.ts";
import { suggestion } from "../../spec/suggest.ts";
import type { Command } from "../command.ts";
import { UsageError } from "../options.ts";
import { formatPluginHelp, formatPluginList } from "../plugin_help.ts";
import { servePlugin } from "../serve_plugin.ts";

const plugin: Command = {
  name: "plugin",
  summary: "act as a plugin, called as engines do: CNI_* variables and stdin",
  arguments: [{ name: "PLUGIN", help: "the name of a plugin that is built in" }],
  options: [],
  examples: [
    {
      command: "CNI_COMMAND=VERSION cni plugin bridge",
      about: "ask the bridge plugin for the versions that it speaks",
    },
    { command: "cni plugin bridge --help", about: "say what the bridge plugin is" },
  ],
  details: ([name = ""]) => hasPlugin(name) ? formatPluginHelp(name) : formatPluginList(),
  run({ words: [name = ""] }) {
    if (!hasPlugin(name)) {
      const hint = suggestion(name, pluginNames()) || `; there are ${pluginNames().join(", ")}`;
      throw new UsageError(`no plugin "${name}" is built in${hint}`);
    }
    return servePlugin(name);
  },
};
export default plugin;
