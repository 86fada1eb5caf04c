import { formatRanges, rangesOverlap } from "../../../plugins/lib/model/address_ranges.ts";
import type { EarlierFiles, RangeOwner } from "../earlier_files.ts";
import { describePlace, type LintPlugin } from "../lint_file.ts";
import type { ConfiguredRange } from "../ranges.ts";
import type { LintFinding, LintRule } from "../rule.ts";

export const overlappingRangesRule: LintRule = {
  name: "overlapping-ranges",
  severity: "error",
  about:
    "Ranges of `host-local` that share addresses. In one network, ADD refuses them. In two networks, it is a warning: two containers can get one address.",
  bad: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{
    "type": "macvlan",
    "master": "eth0",
    "ipam": {
      "type": "host-local",
      "ranges": [[{ "subnet": "10.30.0.0/24" }], [{ "subnet": "10.30.0.0/26" }]]
    }
  }]
}`,
      "20-shop.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "shop",
  "plugins": [{
    "type": "ptp",
    "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.30.0.0/28" }]] }
  }]
}`,
    },
    finds: [
      "10-web.conflist:9:51 10.30.0.1-10.30.0.62 overlaps 10.30.0.1-10.30.0.254, of line 9 column 19",
      '20-shop.conflist:6:49 10.30.0.1-10.30.0.14 overlaps 10.30.0.1-10.30.0.254, of network "web" (10-web.conflist:9:19)',
    ],
  },
  good: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{
    "type": "macvlan",
    "master": "eth0",
    "ipam": {
      "type": "host-local",
      "ranges": [[{ "subnet": "10.30.0.0/24" }], [{ "subnet": "10.31.0.0/26" }]]
    }
  }]
}`,
      "20-shop.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "shop",
  "plugins": [{
    "type": "ptp",
    "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.32.0.0/28" }]] }
  }]
}`,
    },
  },
  find: (file, { earlier }) =>
    file.plugins.flatMap((plugin) => [
      ...findInPlugin(plugin),
      ...plugin.ranges.flatMap((range) => findAcross({ file, plugin, range }, earlier)),
    ]),
};

function findInPlugin(plugin: LintPlugin): LintFinding[] {
  const { ranges } = plugin;
  return ranges.flatMap((later, i) =>
    ranges.slice(0, i).filter((first) => rangesOverlap(first.range, later.range)).map((first) => {
      const { line, column } = plugin.source.span(first.path, "value");
      return toOverlap(plugin, later, first, `line ${line} column ${column}`);
    })
  );
}

function findAcross(owner: RangeOwner, earlier: EarlierFiles): LintFinding[] {
  const other = earlier.findElsewhere(owner);
  if (!other) return [];
  const place = describePlace(other.file, other.range.path);
  return [{ ...toOverlap(owner.plugin, owner.range, other.range, place), severity: "warning" }];
}

function toOverlap(plugin: LintPlugin, later: ConfiguredRange, first: ConfiguredRange, place: string): LintFinding {
  return {
    source: plugin.source,
    path: later.path,
    message: `${formatRanges([later.range])} overlaps ${formatRanges([first.range])}, of ${place}`,
    suggestion: 'choose another "subnet", or part it with "rangeStart" and "rangeEnd"',
  };
}
