import type { PluginDocs } from "../lib/docs/plugin_docs.ts";
import { routeDocs } from "../lib/docs/route_docs.ts";

const SUBNET = "network in CIDR notation, prefix length at most 30 or, in IPv6, 126";
const FIRST = "the first address of the subnet";
const LAST = "the last address of the subnet; in IPv4 the one before the broadcast address";
const IP = "IP address";
const single = { tests: ["config_test.ts"] };
const ranges = { tests: ["ranges_test.ts"] };
const fromRuntime = { tests: ["config_test.ts"] };
const ips = {
  type: "list of IP addresses, with or without prefix length",
  default: "none",
  parity: "yes, all sources add up",
  tests: ["config_test.ts"],
};

/** The page of `host-local`. */
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
      meaning: "Holds the addresses to give. The container gets one address of each range set.",
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
      meaning: "Is the gateway in the result. No container gets this address. It may lie outside the subnet.",
      example: "10.22.0.1",
    },
    "ipam.subnet": {
      ...single,
      type: SUBNET,
      default: "none",
      meaning: "Is an older way to write one range set with one range. It comes before `ipam.ranges`.",
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
      meaning: "Names the directory of the reservations. Each network has a directory below it.",
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
      meaning: "Holds range sets from the runtime. They come before those of the configuration.",
      example: [[{ subnet: "10.24.0.0/16" }]],
      parity: "yes; a single range may stand for a range set",
    },
    "runtimeConfig.ipRanges[][].subnet": { ...fromRuntime, type: SUBNET, meaning: "Is as in `ipam.ranges`." },
    "runtimeConfig.ipRanges[][].rangeStart": {
      ...fromRuntime,
      type: IP,
      default: FIRST,
      meaning: "Is as in `ipam.ranges`.",
    },
    "runtimeConfig.ipRanges[][].rangeEnd": {
      ...fromRuntime,
      type: IP,
      default: LAST,
      meaning: "Is as in `ipam.ranges`.",
    },
    "runtimeConfig.ipRanges[][].gateway": {
      ...fromRuntime,
      type: IP,
      default: FIRST,
      meaning: "Is as in `ipam.ranges`.",
    },
    "runtimeConfig.ips": { ...ips, meaning: "Asks for these addresses.", example: ["10.22.0.77"] },
    "args.cni.ips": { ...ips, meaning: "Asks for these addresses.", example: ["10.22.0.77", "fd00:22::77"] },
    "CNI_ARGS IP": {
      ...ips,
      type: "IP address, with or without prefix length",
      meaning: "Asks for this address.",
      example: "10.22.0.77",
    },
  },
  differences: [
    "The files of the reservations are those of the Go plugin. Both can work on one directory at the same time.",
    "Each network has an index beside its directory: `/var/lib/cni/networks/.NETWORK.index`.",
    "With the index, ADD and DEL take as long for 10,000 reservations as for ten, and at most 1.3 times as long for 60,000.",
    "The index is rebuilt after a boot, and after another program changed the directory. You can delete it at any time.",
    "Rebuilding it takes longest where inode numbers are not unique, as on overlayfs: every reservation is read.",
    "A reservation records in which boot it was made. GC releases those of earlier boots.",
    "ADD takes addresses of an earlier boot only if it would fail otherwise, and names them on stderr.",
    "DEL works with ranges that ADD would refuse, and without ranges.",
    "CHECK compares the reservation with `prevResult`.",
  ],
} satisfies PluginDocs;
