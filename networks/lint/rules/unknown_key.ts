import { findUnknownPluginKeys, type UnknownKey } from "../../../spec/unknown_keys.ts";
import { findUnknownListKeys } from "../../../runtime/unknown_keys.ts";
import { builtinOf, type LintPlugin } from "../lint_file.ts";
import { findProgram, pathIn } from "../written_plugin.ts";
import type { LintFinding, LintRule } from "../rule.ts";

export const unknownKeyRule: LintRule = {
  name: "unknown-key",
  severity: "warning",
  about:
    "A key that nobody reads, such as a misspelt one. Keys that begin with `x-` or `_` and `$schema` are for people.",
  bad: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [
    { "type": "bridge", "isGatway": true, "capabilities": { "mac": true, "portMappings": true } }
  ]
}`,
    },
    finds: [
      "10-web.conflist:5:25 plugins[0].isGatway is not read",
      "10-web.conflist:5:74 plugins[0].capabilities.portMappings is not read",
    ],
  },
  good: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [
    {
      "type": "bridge", "isGateway": true, "capabilities": { "mac": true }, "x-owner": "ops",
      "ipam": { "type": "host-local", "subnet": "10.30.0.0/24" }
    },
    { "type": "portmap", "capabilities": { "portMappings": true } }
  ]
}`,
    },
  },
  find({ source, list, isSinglePlugin, plugins }, { pluginDirectories }) {
    if (!list) return [];
    const isProgram = (type: string) => findProgram(type, pluginDirectories) !== undefined;
    return [
      ...isSinglePlugin ? [] : findUnknownListKeys(list).map((key) => toUnknownKeyFinding(source, key)),
      ...plugins.flatMap((plugin) => {
        const { type, ipamType, raw, path } = plugin;
        const entry = { type, raw, ...ipamType !== undefined && { ipamType } };
        return findUnknownPluginKeys(entry, (name) => builtinOf(name)?.config, isProgram, path)
          .map((key) => toUnknownKeyFinding(plugin.source, withIpamType(plugin, key)));
      }),
    ];
  },
};

/** Without a type, no key of the object has a reader. */
function withIpamType(plugin: LintPlugin, { path, hint }: UnknownKey): UnknownKey {
  const isIpam = path.toLowerCase().startsWith(`${pathIn(plugin, "ipam")}.`.toLowerCase());
  if (!isIpam || plugin.writtenIpamType !== undefined) return { path, hint };
  const type = /[.]addresses$/i.test(path) ? "static" : "host-local";
  return { path, hint: `; add "type": "${type}" to "ipam"` };
}

function toUnknownKeyFinding(source: LintFinding["source"], { path, hint }: UnknownKey): LintFinding {
  const isSuggestion = hint.startsWith("; ");
  return {
    source,
    path,
    part: "key",
    message: `${path} is not read${isSuggestion ? "" : hint}`,
    ...isSuggestion && { suggestion: hint.slice(2) },
  };
}
