import type { KeyDocs, PluginDocs } from "../lib/docs/plugin_docs.ts";

const tests = ["plugin_test.ts"];
const UNCHANGED = "unchanged";
const mac = { type: "MAC address", default: UNCHANGED, example: "02:00:00:00:00:0a", tests };
const before: Pick<KeyDocs, "default" | "parity" | "tests"> = {
  default: "none",
  parity: "yes; it overrides the key without `args.cni`",
  tests,
};

export default {
  example: {
    type: "tuning",
    sysctl: { "net.core.somaxconn": "500", "net.ipv4.conf.IFNAME.arp_filter": "1" },
    mtu: 1400,
  },
  keys: {
    sysctl: {
      type: "object of strings",
      default: "none",
      meaning:
        "Sets kernel parameters below `net` in the container. `IFNAME` stands for the interface's name. If `/etc/cni/tuning/allowlist.conf` exists, one of its lines must allow the parameter.",
      example: { "net.ipv4.conf.IFNAME.arp_filter": "1" },
      tests,
    },
    mac: {
      ...mac,
      meaning:
        "Sets the MAC address of the container's interface. If `bridge` before it has `macspoofchk`, the new MAC address becomes the allowed one.",
    },
    mtu: {
      type: "number of bytes",
      default: "0, unchanged",
      meaning:
        "Sets the MTU of the container's interface. The host's end of a veth pair keeps its own: `mtu` of `bridge` sets both.",
      example: 1400,
      tests,
    },
    promisc: {
      type: "boolean",
      default: "false, unchanged",
      meaning: "Makes the interface promiscuous.",
      example: true,
      tests,
    },
    allmulti: {
      type: "boolean",
      default: UNCHANGED,
      meaning: "`true` makes the interface receive all multicast packets. `false` ends that.",
      example: true,
      tests,
    },
    txQLen: {
      type: "number of packets, 0 to 4294967295",
      default: UNCHANGED,
      meaning: "Sets the length of the transmit queue.",
      example: 2000,
      tests,
    },
    dataDir: {
      type: "path",
      default: '"/run/cni/tuning"',
      meaning: "Names the directory where ADD records the old settings.",
      example: "/run/cni/tuning",
      tests,
    },
    "args.cni": {
      type: "object",
      default: "none",
      meaning: "Holds the keys below. Each overrides the key of the same name.",
      tests,
    },
    "args.cni.sysctl": {
      ...before,
      type: "object of strings",
      meaning: "Sets these parameters in addition to those of `sysctl`.",
      example: { "net.core.somaxconn": "1000" },
    },
    "args.cni.mac": {
      ...before,
      type: "MAC address or empty text",
      meaning: "Is the same as `mac`. It overrides all other sources. Empty text leaves the MAC address as it is.",
      example: "02:00:00:00:00:0a",
    },
    "args.cni.promisc": { ...before, type: "boolean", meaning: "Is the same as `promisc`.", example: true },
    "args.cni.mtu": { ...before, type: "number of bytes", meaning: "Is the same as `mtu`.", example: 1300 },
    "args.cni.allmulti": { ...before, type: "boolean", meaning: "Is the same as `allmulti`.", example: true },
    "args.cni.txQLen": { ...before, type: "number of packets", meaning: "Is the same as `txQLen`.", example: 500 },
    "runtimeConfig.mac": {
      ...mac,
      default: "none",
      meaning: "Is the same as `mac`. It overrides CNI_ARGS and `mac`.",
    },
    "CNI_ARGS MAC": { ...mac, default: "none", meaning: "Is the same as `mac`. It overrides `mac`." },
  },
  differences: [
    "DEL puts kernel parameters back too, unless another program has changed them since.",
    "If several interfaces of a container set one parameter, the last DEL puts it back.",
    "A parameter that is given twice is refused. `net.core.x` and `net/core/x` are the same.",
    "If a container id or an interface name has an underscore, the record's file is `ID:NAME.json` instead of `ID_NAME.json`.",
    "If ADD fails, it puts back the old settings.",
    "If the result has an `mtu`, ADD also changes it there.",
    "CHECK compares numbers by value, not by notation. It ignores settings that ADD did not make.",
  ],
} satisfies PluginDocs;
