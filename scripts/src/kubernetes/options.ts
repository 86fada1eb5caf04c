/** What `scripts/kubernetes` can be called with. @module */
import { parseArgs } from "node:util";

export const KUBERNETES_USAGE = `usage: scripts/kubernetes COMMAND
  up [NODES]       starts a cluster; 2 nodes by default
    --segments N   nodes are on N segments with a router between; default: 1
    --families F   4, 6, 46 or 64; default: 46
    --proxy MODE   of kube-proxy: nftables or iptables; default: nftables
    --bridge-nf N  net.bridge.bridge-nf-call-iptables and -ip6tables of each node: 0 or 1; default: 1
    --network WHAT a manifest or a directory with a kustomization, flannel, or none; default: deploy
    --routes       static routes between the pods of nodes, for a network without its own
    --bare         nodes have an engine and a kubelet that waits for kubeadm, and nothing else
    --image FILE   an archive that each node imports; may be given more than once
  test [PART]      runs Kubernetes' own tests, in a cluster of 2 nodes if none is up
    sample         some twenty of them, the default
    conformance    those of the network that each cluster has to pass
    network        the further ones of the network
    policy         those of NetworkPolicy
    policy-sample  four of those
    REGEXP         those whose names match
  compare [RUNS]   prints what this network and flannel cost, in two clusters that end with it; 20 runs by default
  pods [COUNT] [RUNS] prints how long so many pods at once take on one node, with both and without a network; 40, 5
  migrate [FROM]   takes a cluster to this network by the documentation's commands, and ends it
    flannel        from flannel
    ranges         from static routes by hand, which is deploy/ranges, and back; both without a word
  kubeadm          makes a cluster by the documentation's commands for kubeadm, and ends it
  nodes [COUNT]    prints what so many Nodes cost the API server and a node, and fails if a goal is missed; 5000
  faults [SECONDS] what packets between pods are lost by faults, in a cluster of 3 nodes that ends with it; servers are
                   killed for so long; 20
  shell [COMMAND…] with kubectl, and \`on NODE COMMAND…\`
  load             builds the program again and replaces its pods
  down             ends the cluster
  --name NAME      another cluster beside the first one, for each command`;

export interface KubernetesOptions {
  readonly name: string;
  readonly nodes: number;
  readonly segments: number;
  readonly families: string;
  readonly proxy: string;
  readonly bridgeNf: string;
  readonly network: string;
  readonly hasStaticRoutes: boolean;
  readonly isBare: boolean;
  readonly images: readonly string[];
}

export interface KubernetesCall {
  readonly command: string;
  readonly words: readonly string[];
  readonly options: KubernetesOptions;
}

/** The others are what these start in a place, or in the cluster. */
const COMMANDS = ("up test compare pods migrate kubeadm nodes faults shell load down prepare run suite replace " +
  "nodes-inside migrate-inside kubeadm-inside faults-inside").split(" ");

/** Exits on `--help` and what is wrong. */
export function parseKubernetesCall(argv: readonly string[]): KubernetesCall {
  const shell = argv.indexOf("shell"), help = argv.indexOf("--help");
  // Behind the shell, it is a word of another command.
  if (argv.length === 0 || help >= 0 && (shell < 0 || help < shell)) {
    console.log(KUBERNETES_USAGE);
    process.exit(0);
  }
  try {
    return readCall(argv);
  } catch (error) {
    console.error(`${(error as Error).message}\n${KUBERNETES_USAGE}`);
    process.exit(2);
  }
}

function readCall(argv: readonly string[]): KubernetesCall {
  // What follows belongs to the shell.
  const shell = argv.indexOf("shell");
  const [own, shellWords] = shell < 0 ? [argv, []] : [argv.slice(0, shell + 1), argv.slice(shell + 1)];
  const { values, positionals } = parseArgs({
    args: [...own],
    allowPositionals: true,
    options: {
      name: { type: "string", default: "main" },
      segments: { type: "string", default: "1" },
      families: { type: "string", default: "46" },
      proxy: { type: "string", default: "nftables" },
      "bridge-nf": { type: "string", default: "1" },
      network: { type: "string", default: "deploy" },
      routes: { type: "boolean", default: false },
      bare: { type: "boolean", default: false },
      image: { type: "string", multiple: true, default: [] },
    },
  });
  const [command = "", ...words] = positionals;
  requireMatch(
    "The command",
    command,
    new RegExp(`^(${COMMANDS.join("|")})$`),
    "up, test, compare, pods, migrate, kubeadm, nodes, faults, shell, load or down",
  );
  const nodes = ["up", "run", "prepare"].includes(command) ? words[0] ?? "2" : "2";
  requireMatch("NODES", nodes, /^[1-9]\d?$/, "a number from 1 to 99");
  if (command === "compare") requireMatch("RUNS", words[0] ?? "20", /^[1-9]\d*$/, "a number");
  if (command === "pods") {
    requireMatch("COUNT", words[0] ?? "40", /^[1-9]\d*$/, "a number");
    requireMatch("RUNS", words[1] ?? "5", /^[1-9]\d*$/, "a number");
  }
  if (command === "migrate") requireMatch("FROM", words[0] ?? "flannel", /^(flannel|ranges)$/, "flannel or ranges");
  if (command === "nodes") requireMatch("COUNT", words[0] ?? "5000", /^[1-9]\d*$/, "a number");
  if (command === "faults") requireMatch("SECONDS", words[0] ?? "20", /^[1-9]\d*$/, "a number");
  requireMatch("--name", values.name, /^[a-z0-9-]+$/, "small letters and digits");
  requireMatch("--segments", values.segments, /^[1-9]$/, "a number from 1 to 9");
  requireMatch("--families", values.families, /^(4|6|46|64)$/, "4, 6, 46 or 64");
  requireMatch("--proxy", values.proxy, /^(nftables|iptables)$/, "nftables or iptables");
  requireMatch("--bridge-nf", values["bridge-nf"], /^[01]$/, "0 or 1");
  return {
    command,
    words: [...words, ...shellWords],
    options: {
      name: values.name,
      nodes: Number(nodes),
      segments: Number(values.segments),
      families: values.families,
      proxy: values.proxy,
      bridgeNf: values["bridge-nf"],
      network: values.network,
      hasStaticRoutes: values.routes,
      isBare: values.bare,
      images: values.image,
    },
  };
}

function requireMatch(what: string, text: string, pattern: RegExp, expected: string): void {
  if (!pattern.test(text)) throw new Error(`${what} is "${text}", expected ${expected}`);
}

/** The arguments that say the same. */
export const clusterWords = (options: KubernetesOptions): readonly string[] => [
  `${options.nodes}`,
  `--name=${options.name}`,
  `--segments=${options.segments}`,
  `--families=${options.families}`,
  `--proxy=${options.proxy}`,
  `--bridge-nf=${options.bridgeNf}`,
  `--network=${options.network}`,
  ...options.hasStaticRoutes ? ["--routes"] : [],
  ...options.isBare ? ["--bare"] : [],
  ...options.images.map((path) => `--image=${path}`),
];
