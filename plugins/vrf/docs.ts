import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

const tests = ["plugin_vm_test.ts"];

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
      meaning: "Is the number of the VRF's routing table.",
      example: 1001,
      tests,
    },
  },
  differences: [
    "ADD moves all routes of the interface. DEL puts them back into the tables where they were.",
    "ADD chooses no table that a rule names or that holds routes.",
    "A repeated ADD changes nothing. The Go plugin fails.",
    "The CHECK of the plugins before `vrf` also looks for their routes in the VRF's table.",
  ],
} satisfies PluginDocs;
