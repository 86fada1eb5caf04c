import { findKey, findValue, isJsonObject } from "../../../spec/schema.ts";
import { pathIn } from "../written_plugin.ts";
import type { LintRule } from "../rule.ts";

export const missingIpamRule: LintRule = {
  name: "missing-ipam",
  severity: "warning",
  about: "`isGateway` or `isDefaultGateway` without `ipam`. Nobody names an address, so the bridge is no gateway.",
  bad: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{ "type": "bridge", "isGateway": true }]
}`,
    },
    finds: ["10-web.conflist:4:35 the bridge is no gateway without an address, and there is no IPAM plugin"],
  },
  good: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{
    "type": "bridge",
    "isGateway": true,
    "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.30.0.0/24" }]] }
  }]
}`,
    },
  },
  find: ({ plugins }) =>
    plugins.flatMap((plugin) => {
      const { bridge, isRouted } = plugin.network ?? {};
      const ipam = findValue(plugin.raw, "ipam");
      // Rule unknown-key tells of the keys of an object without a type.
      const isAbsent = ipam === undefined || ipam === null || (isJsonObject(ipam) && Object.keys(ipam).length === 0);
      if (!bridge || !isRouted || !isAbsent) return [];
      const key = ["isGateway", "isDefaultGateway"].flatMap((name) => findKey(plugin.raw, name) ?? [])[0]!;
      return [{
        source: plugin.source,
        path: pathIn(plugin, key),
        part: "key" as const,
        message: "the bridge is no gateway without an address, and there is no IPAM plugin",
        suggestion: 'add "ipam": { "type": "host-local", "ranges": [[{ "subnet": "…" }]] }',
      }];
    }),
};
