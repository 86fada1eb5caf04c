import type { PluginDocs } from "../lib/docs/plugin_docs.ts";
import { routeDocs } from "../lib/docs/route_docs.ts";

const SUBNET = "network in CIDR notation, prefix length at most 30, or 126 in IPv6";
const FIRST = "the first address of the subnet";
const LAST = "the last address of the subnet; in IPv4 the one before the broadcast address";
const IP = "IP address";
const single = { tests: ["config_test.ts"] };
const ranges = { tests: ["ranges_test.ts"] };
const fromRuntime = { tests: ["config_test.ts"] };
const ips = {
  type: "list of IP addresses, with or without prefix length",
  default: "none",
  parity: "yes; addresses of all sources are combined",
  tests: ["config_test.ts"],
};

export default {
  example: {
    type: "bridge",
    ipam: {
      type: "host-local",
      ranges: [
        [{ subnet: "10.22.0.0/16", rangeStart: "10.22.0.10", rangeEnd: "10.22.255.250", gateway: "10.22.0.1" }],
        [{ subnet: "fd00:22::/64" }],
      ],
      routes: [{ dst: "0.0.0.0/0" }, { dst: "::/0" }],
    },
  },
  keys: {
    "ipam.ranges": {
      ...ranges,
      type: "list of range sets, each a list of objects",
      default: "none; ADD needs `ipam.ranges`, `ipam.subnet` or `runtimeConfig.ipRanges`",
      meaning: "Lists the addresses that containers can get. Each container gets one address from each range set.",
    },
    "ipam.ranges[][].subnet": { ...ranges, type: SUBNET, meaning: "Names the subnet.", example: "10.22.0.0/16" },
    "ipam.ranges[][].rangeStart": {
      ...ranges,
      type: IP,
      default: FIRST,
      meaning: "Is the first address that a container can get.",
      example: "10.22.0.10",
    },
    "ipam.ranges[][].rangeEnd": {
      ...ranges,
      type: IP,
      default: LAST,
      meaning: "Is the last address that a container can get.",
      example: "10.22.0.250",
    },
    "ipam.ranges[][].gateway": {
      ...ranges,
      type: IP,
      default: FIRST,
      meaning: "Is the gateway in the result. No container gets this address. It may be outside the subnet.",
      example: "10.22.0.1",
    },
    "ipam.subnet": {
      ...single,
      type: SUBNET,
      default: "none",
      meaning:
        "Is an older way to write one range set with one range. ADD puts this set before those of `ipam.ranges`.",
      example: "10.23.0.0/16",
    },
    "ipam.rangeStart": {
      ...single,
      type: IP,
      default: FIRST,
      meaning: "Is the first address of `ipam.subnet` that a container can get.",
      example: "10.23.0.10",
    },
    "ipam.rangeEnd": {
      ...single,
      type: IP,
      default: LAST,
      meaning: "Is the last address of `ipam.subnet` that a container can get.",
      example: "10.23.0.250",
    },
    "ipam.gateway": {
      ...single,
      type: IP,
      default: FIRST,
      meaning: "Is the gateway of `ipam.subnet`.",
      example: "10.23.0.1",
    },
    ...routeDocs(["plugin_test.ts"]),
    "ipam.dataDir": {
      type: "path",
      default: '"/var/lib/cni/networks"',
      meaning: "Names the directory of the reservations. It has a subdirectory for each network.",
      example: "/var/lib/cni/networks",
      tests: ["plugin_test.ts"],
    },
    "ipam.resolvConf": {
      type: "path of a file as in resolv.conf(5)",
      default: "none",
      meaning: "Names the file whose settings become `dns` of the result.",
      example: "/etc/resolv.conf",
      tests: ["plugin_test.ts"],
    },
    "runtimeConfig.ipRanges": {
      ...fromRuntime,
      type: "list of range sets",
      default: "none",
      meaning: "Lists range sets from the runtime. ADD puts them before those of the configuration.",
      example: [[{ subnet: "10.24.0.0/16" }]],
      parity: "yes; a single range may stand for a range set",
    },
    "runtimeConfig.ipRanges[][].subnet": {
      ...fromRuntime,
      type: SUBNET,
      meaning: "Has the same meaning as in `ipam.ranges`.",
    },
    "runtimeConfig.ipRanges[][].rangeStart": {
      ...fromRuntime,
      type: IP,
      default: FIRST,
      meaning: "Has the same meaning as in `ipam.ranges`.",
    },
    "runtimeConfig.ipRanges[][].rangeEnd": {
      ...fromRuntime,
      type: IP,
      default: LAST,
      meaning: "Has the same meaning as in `ipam.ranges`.",
    },
    "runtimeConfig.ipRanges[][].gateway": {
      ...fromRuntime,
      type: IP,
      default: FIRST,
      meaning: "Has the same meaning as in `ipam.ranges`.",
    },
    "runtimeConfig.ips": { ...ips, meaning: "Requests these addresses.", example: ["10.22.0.77"] },
    "args.cni.ips": { ...ips, meaning: "Requests these addresses.", example: ["10.22.0.77", "fd00:22::77"] },
    "CNI_ARGS IP": {
      ...ips,
      type: "IP address, with or without prefix length",
      meaning: "Requests this address.",
      example: "10.22.0.77",
    },
  },
  differences: [
    "The reservations' files have the Go plugin's format. Both plugins can use one directory at the same time.",
    "Each network has an index beside its directory: `/var/lib/cni/networks/.NETWORK.index`.",
    "With the index, ADD and DEL take the same time with 10,000 reservations as with ten. With 60,000, they take at most 1.3 times as long.",
    "ADD and DEL rebuild the index after a boot, and after another program has changed the directory. You can delete it at any time.",
    "On file systems whose inode numbers are not unique, such as overlayfs, rebuilding is slow: it reads every reservation.",
    "A reservation records the boot in which it was made. GC releases reservations of earlier boots.",
    "If no other address is free, ADD releases reservations of earlier boots, and names them on stderr.",
    "DEL works with ranges that ADD would refuse, and without ranges.",
    "CHECK compares the reservation with `prevResult`.",
  ],
} satisfies PluginDocs;
