import { currentNetns, type Netns } from "../../../ffi/netns/netns.ts";
import { describeOverlap } from "../../../plugins/lib/links/host_networks.ts";
import { allowsRouteOverlap, examineRanges, ownLinkFilter } from "../gateway_networks.ts";
import type { LintFile, LintPlugin } from "../lint_file.ts";
import type { LintRule } from "../rule.ts";

const host = ["link add eth0 up type bridge", "address add 10.30.0.5/16 dev eth0"];

export const routeOverlapRule: LintRule = {
  name: "route-overlap",
  severity: "error",
  about:
    "A subnet of `bridge` or `ptp` that overlaps an address or a connected route of another link of the host. The host would lose its own network, so ADD refuses it. The key `allowRouteOverlap` says otherwise. The host's links are read, not changed.",
  bad: {
    host,
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{
    "type": "ptp",
    "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.30.7.0/24" }]] }
  }]
}`,
    },
    finds: [
      '10-web.conflist:6:49 subnet 10.30.7.0/24 overlaps address 10.30.0.5/16 of the host\'s link "eth0"',
    ],
  },
  good: {
    host,
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{
    "type": "ptp",
    "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.31.7.0/24" }]] }
  }]
}`,
    },
  },
  find(file) {
    if (file.plugins.every((plugin) => plugin.ranges.length === 0)) return [];
    // Deno cannot ask the kernel.
    if (typeof Bun === "undefined") return [];
    using host = currentNetns();
    return file.plugins.flatMap((plugin) => findOverlaps(host, plugin, file));
  },
};

function findOverlaps(host: Netns, plugin: LintPlugin, file: LintFile) {
  if (allowsRouteOverlap(plugin) || !ownLinkFilter(plugin, file)) return [];
  return examineRanges(host, plugin).flatMap(({ range, path, overlap }) => {
    if (!overlap) return [];
    return [{
      source: plugin.source,
      path,
      message: describeOverlap(overlap, [range.subnet]),
      suggestion: 'choose another "subnet", or set "allowRouteOverlap" to true',
    }];
  });
}
