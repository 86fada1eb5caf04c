import { currentNetns, type Netns } from "../../../ffi/netns/netns.ts";
import { describeForeignRoute, listForeignRoutes } from "../../../plugins/lib/links/reachability.ts";
import { examineRanges, ownLinkFilter } from "../gateway_networks.ts";
import type { LintFile, LintPlugin } from "../lint_file.ts";
import type { LintRule } from "../rule.ts";

const host = [
  "link add eth0 up type bridge",
  "address add 192.0.2.5/24 dev eth0",
  "route add 10.30.0.0/16 via 192.0.2.1 dev eth0",
];

export const foreignRouteRule: LintRule = {
  name: "foreign-route",
  severity: "warning",
  about:
    "A subnet of `bridge` or `ptp` that the host routes to a router or into a tunnel, such as that of a VPN. The host's routes are read, not changed.",
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
      '10-web.conflist:6:49 Subnet 10.30.7.0/24 is part of 10.30.0.0/16, which the host routes to "eth0": its addresses there cannot be reached',
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
    return file.plugins.flatMap((plugin) => findForeignRoutes(host, plugin, file));
  },
};

function findForeignRoutes(host: Netns, plugin: LintPlugin, file: LintFile) {
  const isOwn = ownLinkFilter(plugin, file);
  if (!isOwn) return [];
  return examineRanges(host, plugin).flatMap(({ range, path, networks, overlap }) => {
    return listForeignRoutes(networks, [range.subnet], isOwn, overlap).map((route) => ({
      source: plugin.source,
      path,
      message: describeForeignRoute(route),
      suggestion: 'choose a "subnet" that the host does not route',
    }));
  });
}
