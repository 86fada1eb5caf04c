import { missingPluginError } from "../../../plugins/lib/protocol/exec.ts";
import { hasPlugin, isIpamPlugin, pluginNames } from "../../../plugins/registry.ts";
import { findKey, memberPath } from "../../../spec/schema.ts";
import type { LintPlugin } from "../lint_file.ts";
import { findProgram, pathIn } from "../written_plugin.ts";
import type { LintFinding, LintRule } from "../rule.ts";

export const unknownPluginRule: LintRule = {
  name: "unknown-plugin",
  severity: "error",
  about: "A plugin that is neither built in nor in a plugin directory, or an `ipam.type` that allocates no addresses.",
  bad: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [
    { "type": "brige", "ipam": { "type": "portmap" } }
  ]
}`,
    },
    finds: [
      '10-web.conflist:5:15 Cannot run plugin "brige": no such plugin is built in, and no executable has that name; looked in /opt/cni/bin',
      '10-web.conflist:5:42 plugins[0].ipam.type must be an IPAM plugin: "portmap" allocates no addresses',
    ],
  },
  good: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [
    { "type": "bridge", "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.30.0.0/24" }]] } }
  ]
}`,
    },
  },
  find: ({ plugins }, { pluginDirectories }) =>
    plugins.flatMap((plugin) => [
      ...plugin.writtenType ? findMissing(plugin, plugin.writtenType, "type", pluginDirectories) : [],
      ...findMissingIpam(plugin, pluginDirectories),
    ]),
};

function findMissingIpam(plugin: LintPlugin, directories: readonly string[]): LintFinding[] {
  const { writtenIpamType: ipamType, raw } = plugin;
  if (ipamType === undefined) return [];
  const innerPath = memberPath(findKey(raw, "ipam")!, "type");
  const isOther = hasPlugin(ipamType) && !isIpamPlugin(ipamType) && findProgram(ipamType, directories) === undefined;
  if (!isOther) return findMissing(plugin, ipamType, innerPath, directories);
  const path = pathIn(plugin, innerPath);
  const message = `${path} must be an IPAM plugin: "${ipamType}" allocates no addresses`;
  const names = pluginNames().filter(isIpamPlugin).map((name) => `"${name}"`).join(" or ");
  return [{ source: plugin.source, path, message, suggestion: `write ${names}` }];
}

function findMissing(
  plugin: LintPlugin,
  type: string,
  innerPath: string,
  directories: readonly string[],
): LintFinding[] {
  const isName = !/[/\\\0]/.test(type) && type !== "." && type !== "..";
  if (!isName || hasPlugin(type) || findProgram(type, directories) !== undefined) return [];
  const { message, details = "" } = missingPluginError(directories, type, pluginNames());
  const parts = details.split("; ").filter((part) => part !== "");
  const hint = parts.find((part) => part.startsWith("did you mean"));
  return [{
    source: plugin.source,
    path: pathIn(plugin, innerPath),
    message: [message, ...parts.filter((part) => part !== hint)].join("; "),
    suggestion: hint,
  }];
}
