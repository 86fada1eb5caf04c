import { printStdout } from "../../ffi/sys/stdio.ts";
import { JSON_OPTION, PLUGIN_DIR_OPTION, pluginDirectories } from "../arguments/runtime.ts";
import type { Command } from "../command.ts";
import { loadDocumentedBuiltins } from "../documented_builtins.ts";

const schema: Command = {
  name: "schema",
  summary: "print the JSON Schema of network configurations, for an editor",
  description:
    `An editor that knows JSON Schema (draft 2020-12) completes keys, shows what they mean and marks wrong values.
Write "$schema": "./cni.schema" into a configuration. "cni lint" finds more.`,
  arguments: [{ name: "PLUGIN", help: "a built-in plugin: the schema of its object in a list", optional: true }],
  options: [PLUGIN_DIR_OPTION, { ...JSON_OPTION, help: "print JSON, as without it" }],
  examples: [
    { command: "cni schema > /etc/cni/net.d/cni.schema", about: "write the schema of a whole configuration" },
  ],
  async run(input, context) {
    const [name] = input.words;
    await loadDocumentedBuiltins();
    const { conflistSchema, pluginObjectSchema } = await import("../../networks/schema/conflist_schema.ts");
    const { requireBuiltin } = await import("../../networks/schema/explain.ts");
    const document = name === undefined
      ? conflistSchema()
      : pluginObjectSchema(requireBuiltin(name, pluginDirectories(input, context)).name);
    printStdout(`${JSON.stringify(document, null, 2)}\n`);
  },
};
export default schema;
