import { builtinOf } from "../lint_file.ts";
import { pathIn } from "../written_plugin.ts";
import type { LintRule } from "../rule.ts";

export const missingGatewayRule: LintRule = {
  name: "missing-gateway",
  severity: "warning",
  about:
    "A plugin that works on what the host routes, such as `network-policy`, in a network whose gateway the host is not. Its ADD fails, unless somebody has given a bridge its address by hand.",
  bad: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [
    { "type": "bridge" },
    { "type": "network-policy" }
  ]
}`,
    },
    finds: [
      '10-web.conflist:6:15 the host does not route what containers of "bridge" send, and "network-policy" fails',
    ],
  },
  good: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [
    {
      "type": "bridge",
      "isGateway": true,
      "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.30.0.0/24" }]] }
    },
    { "type": "network-policy" }
  ]
}`,
    },
  },
  find({ plugins }) {
    // What another program makes, nobody knows.
    const maker = plugins.find(({ type }) => builtinOf(type) !== undefined);
    if (!maker || maker.network?.isRouted || plugins[0] !== maker) return [];
    return plugins.filter(({ needsRouter }) => needsRouter).map((plugin) => ({
      source: plugin.source,
      path: pathIn(plugin, "type"),
      message: `the host does not route what containers of "${maker.type}" send, and "${plugin.type}" fails`,
      suggestion: maker.network?.bridge ? 'set "isGateway"' : 'use "ptp", or "bridge" with "isGateway"',
    }));
  },
};
