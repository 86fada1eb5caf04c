import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

const RATE = "number of bits per second, or text with a unit";
const BURST = "number of bits, or text with a unit";
const NO_LIMIT = "0, no limit";
const top = { default: NO_LIMIT, parity: "yes, and text with a unit", tests: ["plugin_test.ts", "config_test.ts"] };
const capability = { default: NO_LIMIT, parity: "yes, and text with a unit", tests: ["config_test.ts"] };

export default {
  example: {
    type: "bandwidth",
    ingressRate: "100Mbit",
    ingressBurst: "1Mbit",
    egressRate: "100Mbit",
    egressBurst: "1Mbit",
  },
  keys: {
    ingressRate: {
      ...top,
      type: RATE,
      meaning: "Limits what the container receives. It needs `ingressBurst`.",
      example: "15Mbit",
    },
    ingressBurst: {
      ...top,
      type: BURST,
      meaning: "Says how much the container may receive at once after a pause. It must be less than 4 GiB.",
      example: "64KB",
    },
    egressRate: {
      ...top,
      type: RATE,
      meaning: "Limits what the container sends. It needs `egressBurst`.",
      example: 15000000,
    },
    egressBurst: {
      ...top,
      type: BURST,
      meaning: "Says how much the container may send at once after a pause. It must be less than 4 GiB.",
      example: 512000,
    },
    "runtimeConfig.bandwidth": {
      type: "object",
      default: "none",
      meaning: "Holds limits from the runtime. It has no effect if the configuration sets one of the keys above.",
      example: { ingressRate: 15000000, ingressBurst: 512000, egressRate: 15000000, egressBurst: 512000 },
      tests: ["config_test.ts"],
    },
    "runtimeConfig.bandwidth.ingressRate": { ...capability, type: RATE, meaning: "Is the same as `ingressRate`." },
    "runtimeConfig.bandwidth.ingressBurst": { ...capability, type: BURST, meaning: "Is the same as `ingressBurst`." },
    "runtimeConfig.bandwidth.egressRate": { ...capability, type: RATE, meaning: "Is the same as `egressRate`." },
    "runtimeConfig.bandwidth.egressBurst": { ...capability, type: BURST, meaning: "Is the same as `egressBurst`." },
  },
  absent: {
    shapedSubnets: "the limits apply to all subnets, and ADD warns on stderr",
    unshapedSubnets: "the limits apply to all subnets, and ADD warns on stderr",
  },
  differences: [
    "A number means bits. Text has a unit: `15Mbit`, `1.5Gbit/s`, `64KB`, `2Mibit`.",
    "Text without a unit is refused, and so is `bps`. Programs disagree on what these mean.",
    "ADD warns on stderr if a burst takes more than a second at the rate: the limit then has little effect.",
    "ADD also warns if a burst is smaller than one packet, because full-sized packets are then dropped.",
    "Several interfaces of a container can have limits on one network.",
    "DEL works with a configuration that ADD would refuse.",
  ],
} satisfies PluginDocs;
