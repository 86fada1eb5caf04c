import { networksOverlap } from "../../../ffi/address.ts";
import { findKey } from "../../../spec/schema.ts";
import { gatewaySubnetsOf } from "../gateway_networks.ts";
import { describePlace, type LintPlugin } from "../lint_file.ts";
import { pathIn } from "../written_plugin.ts";
import type { LintRule } from "../rule.ts";

export const sharedBridgeRule: LintRule = {
  name: "shared-bridge",
  severity: "warning",
  about:
    'Two networks with `isGateway` and different IPv4 subnets on one bridge. A bridge has one IPv4 gateway address, so the second ADD fails. Often both networks lack the key `bridge`, whose default is "cni0".',
  bad: {
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
      "20-shop.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "shop",
  "plugins": [{
    "type": "bridge",
    "isGateway": true,
    "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.31.0.0/24" }]] }
  }]
}`,
    },
    finds: [
      '20-shop.conflist:4:15 bridge "cni0" already has the gateway address of network "web" (10-web.conflist:4:15)',
    ],
  },
  good: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{
    "type": "bridge",
    "bridge": "br-web",
    "isGateway": true,
    "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.30.0.0/24" }]] }
  }]
}`,
      "20-shop.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "shop",
  "plugins": [{
    "type": "bridge",
    "bridge": "br-shop",
    "isGateway": true,
    "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.31.0.0/24" }]] }
  }]
}`,
    },
  },
  find: (file, { earlier }) =>
    file.plugins.flatMap((plugin) => {
      const other = earlier.findGateway({ file, plugin }, (candidate) => hasOtherSubnets(plugin, candidate));
      if (!other) return [];
      const place = describePlace(other.file, bridgePath(other.plugin));
      return [{
        source: plugin.source,
        path: bridgePath(plugin),
        message: `bridge "${plugin.network!.bridge!.name}" already has the gateway address of ${place}`,
        suggestion: 'name another "bridge"',
      }];
    }),
};

const bridgePath = (plugin: LintPlugin): string => pathIn(plugin, findKey(plugin.raw, "bridge") ?? "bridge");

function hasOtherSubnets(plugin: LintPlugin, other: LintPlugin): boolean {
  const [subnets, otherSubnets] = [gatewaySubnetsOf(plugin), gatewaySubnetsOf(other)];
  return subnets.length > 0 && !subnets.some((subnet) => otherSubnets.some((first) => networksOverlap(first, subnet)));
}
