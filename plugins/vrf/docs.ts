import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

const tests = ["plugin_vm_test.ts"];

/** The page of `vrf`. */
export default {
  example: { type: "vrf", vrfname: "red", table: 1001 },
  keys: {
    vrfname: {
      type: "interface name of 1 to 15 bytes",
      meaning: "Names the VRF in the container. ADD creates it if it does not exist.",
      example: "red",
      tests,
    },
    table: {
      type: "number of a routing table, 0 to 4294967295",
      default: "0, a free one",
      meaning: "Names the routing table of the VRF.",
      example: 1001,
      tests,
    },
  },
  differences: [
    "ADD moves all routes of the interface. DEL puts them back, in whatever table they were.",
    "ADD takes no table that a rule names or that holds routes.",
    "A repeated ADD changes nothing. The Go plugin fails.",
    "CHECK of the plugin before this one finds the routes in the table of the VRF.",
  ],
} satisfies PluginDocs;
