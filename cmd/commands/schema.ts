import { printStdout } from "../../ffi/sys/stdio.ts";
import { loadPluginDocs } from "../../plugins/docs_registry.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { conflistSchema, pluginObjectSchema } from "../../runtime/schema/conflist_schema.ts";
import { requireBuiltin } from "../../runtime/schema/explain.ts";
import type { Command } from "../command.ts";

const schema: Command = {
  name: "schema",
  summary: "print the JSON Schema of network configurations, for an editor",
  description:
    `An editor that knows JSON Schema (draft 2020-12) completes keys, shows what they mean and marks wrong values.
Write "$schema": "./cni.schema" into a configuration. "cni lint" finds more.`,
  arguments: [{ name: "PLUGIN", help: "a built-in plugin: the schema of its object in a list", optional: true }],
  options: [],
  examples: [
    { command: "cni schema > /etc/cni/net.d/cni.schema", about: "write the schema of a whole configuration" },
  ],
  async run({ words: [name] }) {
    await Promise.all([loadPlugins(), loadPluginDocs()]);
    const document = name === undefined ? conflistSchema() : pluginObjectSchema(requireBuiltin(name).name);
    printStdout(`${JSON.stringify(document, null, 2)}\n`);
  },
};
export default schema;
