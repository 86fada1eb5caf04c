import { currentNetns, type Netns } from "../../../ffi/netns.ts";
import { describeForeignRoutes } from "../../../plugins/lib/links/reachability.ts";
import { parseAlias } from "../../../plugins/lib/protocol/owner.ts";
import { isGateway, vlanGatewayName } from "../../../plugins/bridge/config.ts";
import type { Link } from "../../../ffi/route/link.ts";
import { bridgeConfigOf } from "../bridges.ts";
import type { LintFile, LintPlugin } from "../lint_file.ts";
import { configuredRanges } from "../ranges.ts";
import type { LintRule } from "../rule.ts";

export const foreignRouteRule: LintRule = {
  name: "foreign-route",
  severity: "warning",
  about:
    "A subnet of `bridge` or `ptp` that the host routes elsewhere, such as the network of its uplink or of a VPN. The host's routes are read, not changed.",
  bad: {
    host: ["link add eth0 up type bridge", "address add 10.30.0.5/16 dev eth0"],
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
    host: ["link add eth0 up type bridge", "address add 10.30.0.5/16 dev eth0"],
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
    if (file.plugins.every((plugin) => configuredRanges(plugin).length === 0)) return [];
    // Deno cannot ask the kernel.
    if (typeof Bun === "undefined") return [];
    using host = currentNetns();
    return file.plugins.flatMap((plugin) => findForeignRoutes(host, plugin, file));
  },
};

function findForeignRoutes(host: Netns, plugin: LintPlugin, file: LintFile) {
  const isOwn = ownLinkFilter(plugin, file);
  if (!isOwn) return [];
  return configuredRanges(plugin).flatMap(({ path, range }) =>
    describeForeignRoutes(host, [range.subnet], isOwn).map((message) => ({
      ...{ source: plugin.source, path, message },
      suggestion: 'choose a "subnet" that the host does not route',
    }))
  );
}

/** `undefined` if the subnet may be that of a network around the host. */
function ownLinkFilter(plugin: LintPlugin, { name }: LintFile): ((link: Link) => boolean) | undefined {
  if (plugin.type === "ptp") return ({ alias }) => parseAlias(alias)?.network === name;
  const config = bridgeConfigOf(plugin);
  if (!config || !isGateway(config)) return undefined;
  const names = [config.bridge, vlanGatewayName(config)];
  return (link) => names.includes(link.name ?? "");
}
