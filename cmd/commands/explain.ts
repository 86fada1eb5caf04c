import { printStdout } from "../../ffi/sys/stdio.ts";
import { formatDocument } from "../output/document.ts";
import { DOCUMENT_OPTION, PLUGIN_DIR_OPTION, pluginDirectories } from "../arguments/runtime.ts";
import type { Command } from "../command.ts";
import { loadDocumentedBuiltins } from "../documented_builtins.ts";
import { openScreen } from "../output/screen.ts";
import { formatPluginList } from "./plugin.ts";

const explain: Command = {
  name: "explain",
  summary: "explain a plugin, or a key of its configuration",
  arguments: [{
    name: "PLUGIN[.KEY]",
    help: "a built-in plugin, such as bridge, or a key of it, such as bridge.ipMasq",
  }],
  options: [PLUGIN_DIR_OPTION, DOCUMENT_OPTION],
  examples: [
    { command: "cni explain bridge", about: "the keys of the bridge plugin, with an example" },
    { command: "cni explain host-local.ipam.ranges", about: "what ranges are, and what is in them" },
  ],
  details: formatPluginList,
  async run(input, context) {
    await loadDocumentedBuiltins();
    const { explainKey, explainPlugin } = await import("../../networks/schema/explain.ts");
    const { formatExplainedKeys, formatExplainedPlugin } = await import("../output/explained.ts");
    const [, name = "", key] = /^([^.]*)(?:\.(.*))?$/s.exec(input.words[0]!)!;
    const directories = pluginDirectories(input, context);
    const explained = key === undefined ? explainPlugin(name, directories) : explainKey(name, key, directories);
    const screen = openScreen(1, context.env);
    const format = () =>
      "plugin" in explained ? formatExplainedPlugin(explained, screen) : formatExplainedKeys(name, explained, screen);
    printStdout(input.has(DOCUMENT_OPTION.name) ? formatDocument(explained) : format());
  },
};
export default explain;
