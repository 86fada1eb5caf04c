import { builtinOf, type LintPlugin } from "../lint_file.ts";
import { pathIn } from "../written_plugin.ts";
import type { LintRule } from "../rule.ts";

export const chainOrderRule: LintRule = {
  name: "chain-order",
  severity: "error",
  about: "A plugin that changes an interface, such as `portmap`, before the plugin that makes it.",
  bad: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [
    { "type": "portmap", "capabilities": { "portMappings": true } },
    { "type": "bridge" }
  ]
}`,
    },
    finds: ['10-web.conflist:5:15 "portmap" changes the interface of an earlier plugin, and there is none'],
  },
  good: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [
    { "type": "bridge" },
    { "type": "portmap", "capabilities": { "portMappings": true } }
  ]
}`,
    },
  },
  find({ plugins }) {
    const firstWithResult = plugins.findIndex((plugin) => !needsPrevResult(plugin));
    const misplaced = plugins.slice(0, firstWithResult < 0 ? plugins.length : firstWithResult);
    const maker = plugins[firstWithResult];
    return misplaced.map((plugin) => ({
      source: plugin.source,
      path: pathIn(plugin, "type"),
      message: `"${plugin.type}" changes the interface of an earlier plugin, and there is none`,
      suggestion: maker ? `put it after "${maker.type}"` : 'put one such as "bridge" before it',
    }));
  },
};

function needsPrevResult({ type, ipamType }: LintPlugin): boolean {
  return builtinOf(type)?.needsPrevResult?.(ipamType === undefined ? {} : { ipamType }) === true;
}
