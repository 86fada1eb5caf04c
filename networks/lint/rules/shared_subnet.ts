import { formatRanges } from "../../../plugins/lib/model/address_ranges.ts";
import { describePlace } from "../lint_file.ts";
import type { LintRule } from "../rule.ts";

export const sharedSubnetRule: LintRule = {
  name: "shared-subnet",
  severity: "warning",
  about:
    "Two networks on one bridge with one subnet. Each has its own reservations, so two containers can get one address.",
  bad: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{
    "type": "bridge",
    "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.30.0.0/24" }]] }
  }]
}`,
      "20-shop.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "shop",
  "plugins": [{
    "type": "bridge",
    "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.30.0.0/24" }]] }
  }]
}`,
    },
    finds: [
      '20-shop.conflist:6:49 10.30.0.1-10.30.0.254 on bridge "cni0" is also given out by network "web" (10-web.conflist:6:49)',
    ],
  },
  good: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{
    "type": "bridge",
    "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.30.0.0/24", "rangeEnd": "10.30.0.99" }]] }
  }]
}`,
      "20-shop.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "shop",
  "plugins": [{
    "type": "bridge",
    "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.30.0.0/24", "rangeStart": "10.30.0.100" }]] }
  }]
}`,
    },
  },
  find: (file, { earlier }) =>
    file.plugins.flatMap((plugin) =>
      plugin.ranges.flatMap((range) => {
        const bridge = plugin.network?.bridge?.name;
        const other = bridge === undefined ? undefined : earlier.findOnSegment({ file, plugin, range });
        if (!other) return [];
        const place = describePlace(other.file, other.range.path);
        return [{
          source: plugin.source,
          path: range.path,
          message: `${formatRanges([range.range])} on bridge "${bridge}" is also given out by ${place}`,
          suggestion: 'give each network a "bridge" and subnet of its own, or part the subnet with "rangeStart"',
        }];
      })
    ),
};
