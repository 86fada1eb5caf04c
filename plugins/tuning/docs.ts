import type { KeyDocs, PluginDocs } from "../lib/docs/plugin_docs.ts";

const tests = ["plugin_test.ts"];
const UNCHANGED = "unchanged";
const mac = { type: "MAC address", default: UNCHANGED, example: "02:00:00:00:00:0a", tests };
const before: Pick<KeyDocs, "default" | "parity" | "tests"> = {
  default: "none",
  parity: "yes, before the key without `args.cni`",
  tests,
};

/** The page of `tuning`. */
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
        "Sets kernel parameters below `net` in the container. `IFNAME` stands for the interface. If the file `/etc/cni/tuning/allowlist.conf` exists, a line of it must allow the parameter.",
      example: { "net.ipv4.conf.IFNAME.arp_filter": "1" },
      tests,
    },
    mac: {
      ...mac,
      meaning:
        "Sets the MAC address of the container's interface. Behind `bridge` with `macspoofchk`, it is the allowed one from then on.",
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
      meaning: "Says whether the interface receives all multicast packets.",
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
      meaning: "Names the directory where ADD records what was before.",
      example: "/run/cni/tuning",
      tests,
    },
    "args.cni": {
      type: "object",
      default: "none",
      meaning: "Holds the keys below. Each counts before the key of the same name.",
      tests,
    },
    "args.cni.sysctl": {
      ...before,
      type: "object of strings",
      meaning: "Sets these parameters beside those of `sysctl`.",
      example: { "net.core.somaxconn": "1000" },
    },
    "args.cni.mac": {
      ...before,
      type: "MAC address or empty text",
      meaning: "Is the same as `mac`. It counts before all other sources. Empty text leaves the MAC address as it is.",
      example: "02:00:00:00:00:0a",
    },
    "args.cni.promisc": { ...before, type: "boolean", meaning: "Is the same as `promisc`.", example: true },
    "args.cni.mtu": { ...before, type: "number of bytes", meaning: "Is the same as `mtu`.", example: 1300 },
    "args.cni.allmulti": { ...before, type: "boolean", meaning: "Is the same as `allmulti`.", example: true },
    "args.cni.txQLen": { ...before, type: "number of packets", meaning: "Is the same as `txQLen`.", example: 500 },
    "runtimeConfig.mac": {
      ...mac,
      default: "none",
      meaning: "Is the same as `mac`. It counts before CNI_ARGS and `mac`.",
    },
    "CNI_ARGS MAC": { ...mac, default: "none", meaning: "Is the same as `mac`. It counts before `mac`." },
  },
  differences: [
    "DEL puts kernel parameters back too, unless another program has changed them since.",
    "A parameter that several interfaces of a container set goes back with the last of them.",
    "A parameter that is there twice is refused in any spelling: `net.core.x` is `net/core/x`.",
    "Where a container id or an interface name has an underscore, the record is `ID:NAME.json` and not `ID_NAME.json`.",
    "ADD that fails puts back what it changed.",
    "An `mtu` is also changed in the result, if the result has one.",
    "CHECK takes numbers in any notation for the same. It does not object to settings that ADD did not make.",
  ],
} satisfies PluginDocs;
