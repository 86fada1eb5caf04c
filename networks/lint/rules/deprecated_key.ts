import { builtinDocs } from "../../../plugins/docs_registry.ts";
import { commonKeys } from "../../../plugins/lib/docs/common_docs.ts";
import type { KeyDocs } from "../../../plugins/lib/docs/plugin_docs.ts";
import { findKey, isJsonObject, memberPath } from "../../../spec/schema.ts";
import { atLeast } from "../../../spec/version.ts";
import type { LintFile, LintPlugin } from "../lint_file.ts";
import { pathIn } from "../written_plugin.ts";
import type { LintFinding, LintRule } from "../rule.ts";

export const deprecatedKeyRule: LintRule = {
  name: "deprecated-key",
  severity: "warning",
  about:
    "A key that has no effect any more, or that another key replaces, and a file with a single plugin in version 1.0.0 or newer.",
  bad: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [
    { "type": "bridge" },
    { "type": "portmap", "capabilities": { "portMappings": true }, "markMasqBit": 13 }
  ]
}`,
    },
    finds: ["10-web.conflist:6:68 plugins[1].markMasqBit is deprecated"],
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
  find: (file) => [
    ...singlePluginFinding(file),
    ...file.plugins.flatMap((plugin) => {
      const documented = [plugin.type, plugin.ipamType ?? ""].map((type) => builtinDocs(type)?.keys ?? {});
      const keys: Readonly<Record<string, KeyDocs>> = Object.assign({}, commonKeys, ...documented);
      return Object.entries(keys).flatMap(([documentedPath, { deprecated }]) =>
        deprecated === undefined ? [] : presentPaths(plugin, documentedPath).map((path) => ({
          source: plugin.source,
          path,
          part: "key" as const,
          message: `${path} is deprecated`,
          suggestion: deprecated,
        }))
      );
    }),
  ],
};

/** SPEC 1.0.0 removed files with one plugin's object. */
function singlePluginFinding({ source, isSinglePlugin, cniVersion }: LintFile): LintFinding[] {
  if (!isSinglePlugin || !atLeast(cniVersion, "1.0.0")) return [];
  const message = "a file with a single plugin is deprecated since version 1.0.0 of the specification";
  const suggestion = 'put the plugin into "plugins": […], and rename the file to end in ".conflist"';
  return [{ source, path: "type", part: "key", message, suggestion }];
}

/** @param documentedPath without lists: `ipam.subnet` */
function presentPaths(plugin: LintPlugin, documentedPath: string): string[] {
  let node: unknown = plugin.raw;
  let path = "";
  for (const name of documentedPath.includes("/") ? [documentedPath] : documentedPath.split(".")) {
    const key = isJsonObject(node) ? findKey(node, name) : undefined;
    if (!isJsonObject(node) || key === undefined) return [];
    path = memberPath(path, key);
    node = node[key];
  }
  return [pathIn(plugin, path)];
}
