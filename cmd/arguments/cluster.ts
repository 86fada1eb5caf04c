/** Options of "cni serve --cluster". @module */
import { networkOf, parseCidr } from "../../ffi/address.ts";
import { type Descriptor, openFile } from "../../ffi/sys/file.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { DEFAULT_CLUSTER_SETTINGS, TUNNEL_MODES } from "../../cluster/network/settings.ts";
import { CLUSTER_PARTS, type ClusterPartSettings } from "../../cluster/settings.ts";
import type { PolicyPartSettings } from "../../policy/settings.ts";
import { ConfigError } from "../../spec/error.ts";
import { parseNetworkConfigList } from "../../spec/network_config_list.ts";
import { readConfiguration } from "../../runtime/load.ts";
import type { CliContext } from "../../program/start.ts";
import { UsageError } from "../../program/usage_error.ts";
import { type OptionSpec, type ParsedOptions, parseOrUsageError } from "../options.ts";
import { findApiServer, SERVICE_ACCOUNT_DIRECTORY } from "../../cluster/api/account.ts";
import { absolutePath } from "./path.ts";

const { port: DEFAULT_PORT, vni: DEFAULT_VNI } = DEFAULT_CLUSTER_SETTINGS;
const MAX_LOG_RATE = 1000;
const MAX_VNI = 2 ** 24 - 1;

export const CLUSTER_OPTIONS: readonly OptionSpec[] = [
  {
    name: "cluster",
    value: "WHAT",
    choices: CLUSTER_PARTS,
    help: "in a pod of Kubernetes: network lets pods of all nodes reach each other; ranges only serves --conflist",
  },
  { name: "node", value: "NAME", help: "with --cluster: the name of this node" },
  {
    name: "conflist",
    value: "FILE",
    help: "with --cluster: the network that engines get, with this node's ranges and MTU, when all nodes are reached",
  },
  {
    name: "policy",
    help: "with --cluster: enforce NetworkPolicy; given anyway if the network of --conflist has network-policy",
  },
  {
    name: "policy-log",
    value: "NUMBER",
    help: "log packets that policies drop: so many a second, for each reason, at most",
  },
  { name: "no-policy-counters", help: "do not count packets that policies drop" },
  {
    name: "tunnel",
    value: "WHAT",
    choices: TUNNEL_MODES,
    help: "auto: VXLAN to nodes that are on no link of this one; always; never (auto)",
  },
  { name: "tunnel-port", value: "NUMBER", help: `UDP port of VXLAN, the same on all nodes (${DEFAULT_PORT})` },
  { name: "vni", value: "NUMBER", help: `VXLAN network identifier, the same on all nodes (${DEFAULT_VNI})` },
  {
    name: "non-masquerade-cidr",
    value: "SUBNET",
    help: "pods keep their address towards these destinations too; may be repeated",
  },
  {
    name: "node-condition",
    help: "with --cluster network: tell the API that the node's network is up (NetworkUnavailable=False), for clouds",
  },
  {
    name: "api-server",
    value: "URL",
    help: "with --cluster: where the API server is (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT)",
  },
];

/** Reads what is in this container's mounts. */
export interface ClusterArguments {
  readonly settings: ClusterPartSettings;
  /** Absent if nobody wants NetworkPolicy. */
  readonly policy: PolicyPartSettings | undefined;
  readonly account: Descriptor;
}

/** Call it before this process enters the host's mounts. Returns `undefined` without `--cluster`. */
export function clusterArguments(input: ParsedOptions, context: CliContext): ClusterArguments | undefined {
  const what = CLUSTER_PARTS.find((each) => each === input.find("cluster"));
  if (what === undefined) {
    const lonely = CLUSTER_OPTIONS.find(({ name }) => input.has(name) || input.find(name) !== undefined);
    if (lonely) {
      throw new UsageError(`--${lonely.name} is for a server that makes a network: give --cluster network too`);
    }
    return undefined;
  }
  const node = input.find("node");
  if (!node) throw new UsageError("--cluster needs --node NAME: the name of this node's object");
  const apiServer = input.find("api-server") ?? findApiServer(context.env);
  if (apiServer === undefined) {
    throw new UsageError(
      "--cluster needs --api-server URL where KUBERNETES_SERVICE_HOST is not set, as outside of a pod",
    );
  }
  const setsCondition = input.has("node-condition");
  if (setsCondition && what !== "network") {
    throw new UsageError("--node-condition needs --cluster network: who routes between nodes sets the condition");
  }
  const file = input.find("conflist");
  const settings: ClusterPartSettings = {
    what,
    node,
    apiServer: requireUrl(apiServer),
    setsCondition,
    tunnel: TUNNEL_MODES.find((mode) => mode === input.find("tunnel")) ?? "auto",
    vni: numberOf(input, "vni", DEFAULT_VNI, 1, MAX_VNI),
    port: numberOf(input, "tunnel-port", DEFAULT_PORT, 1, 65535),
    nonMasqueradeCidrs: input.list("non-masquerade-cidr").map((text) =>
      parseOrUsageError("--non-masquerade-cidr", text, (cidr) => networkOf(parseCidr(cidr)), "192.0.2.0/24")
    ),
    ...file !== undefined && { network: readNetwork(absolutePath(file, context)) },
  };
  const { network } = settings;
  const policed = network && findPolicedNetwork(network);
  const isPolicyWanted = input.has("policy") || policed !== undefined;
  const policy = isPolicyWanted
    ? {
      node,
      apiServer: settings.apiServer,
      ...policed !== undefined && { network: policed },
      drops: {
        isCounted: !input.has("no-policy-counters"),
        ...input.find("policy-log") !== undefined && { logRate: numberOf(input, "policy-log", 0, 1, MAX_LOG_RATE) },
      },
    }
    : undefined;
  requirePolicy(input, policy);
  return { settings, policy, account: openAccount() };
}

function requirePolicy(input: ParsedOptions, policy: PolicyPartSettings | undefined): void {
  const lonely = ["policy-log", "no-policy-counters"].find((name) => input.has(name));
  if (policy || lonely === undefined) return;
  throw new UsageError(`--${lonely} is for NetworkPolicy: give --policy, or a --conflist with network-policy, too`);
}

/** Returns the name of a network whose pods are policed. One that cannot be used is refused later. */
function findPolicedNetwork(
  { text, fileName }: { readonly text: string; readonly fileName: string },
): string | undefined {
  try {
    const { name, plugins } = parseNetworkConfigList(text, fileName);
    return plugins.some(({ type }) => type === "network-policy") ? name : undefined;
  } catch (error) {
    if (error instanceof ConfigError || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function readNetwork(path: string): NonNullable<ClusterPartSettings["network"]> {
  return { fileName: path.slice(path.lastIndexOf("/") + 1), text: readConfiguration(path) };
}

function openAccount(): Descriptor {
  try {
    return openFile(SERVICE_ACCOUNT_DIRECTORY);
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    throw new UsageError(
      `--cluster needs a service account in "${SERVICE_ACCOUNT_DIRECTORY}", as a pod has: ${error.message}`,
    );
  }
}

function requireUrl(text: string): string {
  const url = URL.parse(text);
  if (url?.protocol === "https:" && url.pathname === "/") return url.origin;
  throw new UsageError(`--api-server must be a URL such as https://10.96.0.1:443: got ${JSON.stringify(text)}`);
}

function numberOf(input: ParsedOptions, name: string, byDefault: number, min: number, max: number): number {
  const text = input.find(name);
  if (text === undefined) return byDefault;
  const value = /^\d{1,9}$/.test(text) ? Number(text) : NaN;
  if (value >= min && value <= max) return value;
  throw new UsageError(`--${name} must be a number from ${min} to ${max}: got ${JSON.stringify(text)}`);
}
