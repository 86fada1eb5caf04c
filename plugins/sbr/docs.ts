import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

const tests = ["plugin_test.ts"];

/** The page of `sbr`. */
export default {
  example: { type: "sbr", gateways: ["192.0.2.1"] },
  keys: {
    table: {
      type: "number of a routing table, 1 to 4294967295",
      default: "a free table from 100 on for each address",
      meaning: "Names a table that another program fills. ADD then adds rules only, and moves no routes.",
      example: 200,
      tests,
    },
    gateways: {
      type: "list of IP addresses, at most one of each family",
      default: "the gateways in `prevResult`",
      meaning: "Names the gateways of the new default routes.",
      example: ["192.0.2.1", "2001:db8::1"],
      tests,
    },
    addSourceHints: {
      type: "boolean",
      default: "false",
      meaning: "Leaves the routes to the subnets in the main table, with the address of the interface as source.",
      example: true,
      tests,
    },
  },
  differences: [
    "ADD takes no table that holds routes. The Go plugin looks only for rules that name the table.",
    "Routes whose gateway is in no subnet of the interface move too. The Go plugin drops them.",
    "DEL puts the routes back into the main table, except default routes, if the interface still exists.",
    "DEL also removes the rules of addresses that are gone.",
    "CHECK compares rules and routes.",
  ],
} satisfies PluginDocs;
