import { findKey, findValue, isJsonObject } from "../../../spec/schema.ts";
import type { LintPlugin } from "../lint_file.ts";
import { pathIn } from "../written_plugin.ts";
import type { LintRule } from "../rule.ts";

/** What a plugin does comes from the runtime, unless one of these keys says it. */
const NEEDED: Readonly<Record<string, { readonly capability: string; readonly insteadOf: readonly string[] }>> = {
  portmap: { capability: "portMappings", insteadOf: ["runtimeConfig"] },
  bandwidth: { capability: "bandwidth", insteadOf: ["runtimeConfig", "ingressRate", "egressRate"] },
};

export const missingCapabilityRule: LintRule = {
  name: "missing-capability",
  severity: "warning",
  about:
    "A plugin that does nothing, because it does not declare the capability by which the runtime sends its values.",
  bad: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [
    { "type": "bridge" },
    { "type": "portmap" }
  ]
}`,
    },
    finds: ['10-web.conflist:6:5 "portmap" gets nothing from the runtime: it does not declare "portMappings"'],
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
  find: ({ plugins }) =>
    plugins.filter(lacksCapability).map((plugin) => {
      const { capability } = NEEDED[plugin.type]!;
      const message = `"${plugin.type}" gets nothing from the runtime: it does not declare "${capability}"`;
      const suggestion = `add "capabilities": { "${capability}": true }`;
      return { source: plugin.source, path: pathIn(plugin, ""), message, suggestion };
    }),
};

function lacksCapability({ type, raw }: LintPlugin): boolean {
  if (!Object.hasOwn(NEEDED, type)) return false;
  const { capability, insteadOf } = NEEDED[type]!;
  const declared = findValue(raw, "capabilities");
  if (isJsonObject(declared) && declared[capability] === true) return false;
  return insteadOf.every((key) => findKey(raw, key) === undefined);
}
