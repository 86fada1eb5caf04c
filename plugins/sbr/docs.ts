import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

const tests = ["plugin_test.ts"];

export default {
  example: { type: "sbr", gateways: ["192.0.2.1"] },
  keys: {
    table: {
      type: "number of a routing table, 1 to 4294967295",
      default: "a free table from 100 on for each address",
      meaning: "Is the number of a table that another program fills. ADD then adds only rules and moves no routes.",
      example: 200,
      tests,
    },
    gateways: {
      type: "list of IP addresses, at most one of each family",
      default: "the gateways in `prevResult`",
      meaning: "Lists the gateways of the new default routes.",
      example: ["192.0.2.1", "2001:db8::1"],
      tests,
    },
    addSourceHints: {
      type: "boolean",
      default: "false",
      meaning: "Keeps the routes to the interface's subnets in the main table, with the interface's address as source.",
      example: true,
      tests,
    },
  },
  differences: [
    "ADD chooses a table without routes. The Go plugin only checks that no rule names the table.",
    "Routes whose gateway is outside the interface's subnets move too. The Go plugin deletes them.",
    "If the interface still exists, DEL puts the routes back into the main table, except default routes.",
    "DEL also removes the rules of addresses that no longer exist.",
    "CHECK compares rules and routes.",
  ],
} satisfies PluginDocs;
