import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

/** The page of `network-policy`, from which `scripts/docs` makes it. */
export default {
  example: { type: "network-policy" },
  keys: {
    socketPath: {
      type: "string",
      default: '"/run/cni/policy/socket"',
      meaning: "Names the socket of `cni serve`, which knows the policies of each pod.",
      example: "/run/cni/policy/socket",
      parity: "added here",
      tests: ["plugin_test.ts"],
    },
    dataDir: {
      type: "string",
      default: '"/var/lib/cni"',
      meaning: "Names the directory in which `cni serve` stores the policies that it last knew.",
      example: "/var/lib/cni",
      parity: "added here",
      tests: ["plugin_test.ts"],
    },
    waitMs: {
      type: "number",
      default: "5000",
      meaning:
        "Says how many milliseconds ADD waits for the pod's policies. A pod whose policies come later starts closed, and opens then. After a boot, ADD waits as long for the first start of `cni serve`. In the first 30 s of the server's part `policy`, ADD waits as long for the API server, too.",
      example: 2000,
      parity: "added here",
      tests: ["plugin_test.ts"],
    },
  },
  differences: [
    "There is no Go plugin of this name.",
    "It needs a veth pair to the host, which routes: put it behind `ptp`, or `bridge` with `isGateway`. Others are refused.",
    "A pod starts with its policies in force, or closed.",
    "While `cni serve` does not run or knows nothing, it starts closed if a stored policy is in its namespace.",
    "It also starts closed if no policies were ever stored. A message on stderr says so.",
    "Containers that Kubernetes does not know are never isolated: their `CNI_ARGS` have no `K8S_POD_NAMESPACE`.",
    "Packets from a container's interface with another source than its addresses are dropped, in both families.",
    "On a bridge, so are frames with another MAC address, and ARP and neighbour advertisements for other addresses.",
    "So put `tuning` with `mac` before it.",
    "To check sources, it puts the link on the host into group 25454, unless it is in another one than 0 already.",
    "The host routes what containers on a bridge send to one receiver, whatever `bridge-nf-call-iptables` says.",
    "Other ports of the bridge do not: an isolated container gets nothing from an uplink of the bridge, for example.",
    "A container always reaches its own host and itself.",
  ],
} satisfies PluginDocs;
