import { printStderr } from "../../ffi/sys/stdio.ts";
import type { AnyPlugin } from "../../plugins/lib/protocol/context.ts";
import { findPlugin, hasPlugin, loadPlugins, pluginNames } from "../../plugins/registry.ts";
import { suggestion } from "../../spec/suggest.ts";
import type { Command } from "../command.ts";
import type { CliContext } from "../../program/start.ts";
import { formatRows } from "../help.ts";
import { UsageError } from "../../program/usage_error.ts";
import { servePlugin } from "../serve_plugin.ts";

const plugin: Command = {
  name: "plugin",
  summary: "act as a plugin, with CNI_* variables and stdin as from an engine",
  arguments: [{ name: "PLUGIN", help: "the name of a built-in plugin" }],
  options: [{ name: "service", help: "run the service of the plugin, until it ends" }],
  examples: [
    {
      command: "CNI_COMMAND=VERSION cni plugin bridge",
      about: "ask the bridge plugin for the versions that it speaks",
    },
    { command: "cni plugin bridge --help", about: "describe the bridge plugin" },
  ],
  details: async ([name = ""]) => {
    if (!hasPlugin(name)) return formatPluginList();
    await loadPlugins([name]);
    return `plugin ${name}:\n  ${describePlugin(findPlugin(name)!)}`;
  },
  async run({ words: [name = ""], has }, context) {
    if (!hasPlugin(name)) {
      const hint = suggestion(name, pluginNames()) || `; there are ${pluginNames().join(", ")}`;
      throw new UsageError(`no plugin "${name}" is built in${hint}`);
    }
    if (!has("service")) return servePlugin({ ...context, programName: name });
    await loadPlugins([name]);
    await runService(findPlugin(name)!, context);
  },
};
export default plugin;

export async function formatPluginList(): Promise<string> {
  await loadPlugins();
  const rows = pluginNames().map((name) => [name, describePlugin(findPlugin(name)!)] as const);
  return `plugins, each also run by a link of its name to this program:\n${formatRows(rows)}`;
}

export function describePlugin({ about, service }: AnyPlugin): string {
  return service ? `${about}; service: ${service.summary}` : about;
}

export async function runService({ name, service }: AnyPlugin, { env }: Pick<CliContext, "env">): Promise<void> {
  if (!service) throw new UsageError(`plugin "${name}" has no service`);
  await service.run({ env, log: (message) => printStderr(`${name}: ${message}`) });
}
