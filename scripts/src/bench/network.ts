/** The networks that are attached, and the ways to attach to them. @module */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Netns } from "../../../ffi/netns.ts";
import type { BenchWorkspace } from "./workspace.ts";
import { type ProcessCommand, runSuccessfully } from "./process.ts";

/** A configuration list. */
export interface BenchNetwork {
  readonly cniVersion: string;
  readonly name: string;
  readonly plugins: readonly (Readonly<Record<string, unknown>> & { readonly type: string })[];
}

/** What is attached: a namespace, a name for it, and a number, which decides the ports. */
export interface BenchContainer {
  readonly netns: Netns;
  readonly id: string;
  readonly number: number;
  /** Whether one of its ports is for UDP; what the kernel remembers of UDP conversations is then to be looked through. */
  readonly udp?: boolean;
}

/** A way to attach and detach. Both give the milliseconds that the programs took. */
export interface Contender {
  add(container: BenchContainer): number;
  del(container: BenchContainer): number;
}

export const SUBNET = "10.66.0.0/16";

function bridge(state: string, name: string, ipMasq: boolean) {
  const ipam = {
    type: "host-local",
    dataDir: join(state, "networks"),
    ranges: [[{ subnet: SUBNET }]],
    routes: [{ dst: "0.0.0.0/0" }],
  };
  return { type: "bridge", bridge: name, isGateway: true, ipMasq, hairpinMode: true, ipam };
}

/** A bridge with addresses, and masqueraded if told. */
export function plainNetwork({ state }: BenchWorkspace, name: string, ipMasq = false): BenchNetwork {
  return { cniVersion: "1.0.0", name, plugins: [bridge(state, name, ipMasq)] };
}

/** The chain that podman makes for a network, masqueraded. */
export function chainNetwork({ state }: BenchWorkspace, name: string): BenchNetwork {
  const portmap = { type: "portmap", capabilities: { portMappings: true } };
  const plugins = [bridge(state, name, true), portmap, { type: "firewall" }, { type: "tuning" }];
  return { cniVersion: "1.0.0", name, plugins };
}

/** Two published ports. */
export const benchPortMappings = ({ number, udp = false }: Pick<BenchContainer, "number" | "udp">) => [
  { hostPort: 20000 + 2 * number, containerPort: 80, protocol: "tcp" },
  { hostPort: 20001 + 2 * number, containerPort: 53, protocol: udp ? "udp" : "tcp" },
];

/** The call of one plugin. */
export function pluginCall(
  directory: string,
  network: BenchNetwork,
  type: string,
  command: string,
  container: BenchContainer,
  prevResult?: unknown,
): ProcessCommand {
  const plugin = network.plugins.find((entry) => entry.type === type);
  const capable = plugin?.type === "portmap";
  const request = {
    ...plugin,
    name: network.name,
    cniVersion: network.cniVersion,
    ...capable ? { runtimeConfig: { portMappings: benchPortMappings(container) } } : {},
    ...prevResult ? { prevResult } : {},
  };
  const env = {
    CNI_COMMAND: command,
    CNI_CONTAINERID: container.id,
    CNI_NETNS: container.netns.path,
    CNI_IFNAME: "eth0",
    CNI_PATH: directory,
  };
  return { argv: [join(directory, type)], env, stdin: JSON.stringify(request) };
}

/** Plugin by plugin, as container engines do. Only the plugins are on the clock, not what makes their requests. */
export function execContender(host: Netns, directory: string, network: BenchNetwork): Contender {
  const results = new Map<string, unknown>();
  const call = (type: string, command: string, container: BenchContainer, prevResult: unknown) =>
    host.run(() => runSuccessfully(pluginCall(directory, network, type, command, container, prevResult)));
  return {
    add(container) {
      let ms = 0;
      let result: unknown;
      for (const { type } of network.plugins) {
        const ended = call(type, "ADD", container, result);
        ms += ended.ms;
        result = JSON.parse(ended.stdout);
      }
      results.set(container.id, result);
      return ms;
    },
    del(container) {
      let ms = 0;
      for (const { type } of [...network.plugins].reverse()) {
        ms += call(type, "DEL", container, results.get(container.id)).ms;
      }
      return ms;
    },
  };
}

/** The call of `cni run` for the whole list. */
export function runCall(
  bench: BenchWorkspace,
  network: BenchNetwork,
  verb: string,
  container: BenchContainer,
): ProcessCommand {
  const file = join(bench.state, `${network.name}.conflist`);
  writeFileSync(file, JSON.stringify(network));
  const options = ["--container-id", container.id, ...benchRuntimeContext(bench)];
  const ports = JSON.stringify({ portMappings: benchPortMappings(container) });
  return { argv: [bench.cni, "run", verb, file, container.netns.path, ...options, "--cap-args", ports] };
}

export const cacheDirectory = ({ state }: BenchWorkspace): string => join(state, "cache");

/** What `cni run` is to be told always: to leave the directories of the machine alone. */
export const benchRuntimeContext = (bench: BenchWorkspace): readonly string[] => [
  "--cache-dir",
  cacheDirectory(bench),
  "--plugin-dir",
  bench.plugins,
];

/** The whole list in one process of ours. */
export function runContender(host: Netns, bench: BenchWorkspace, network: BenchNetwork): Contender {
  const call = (verb: string, container: BenchContainer) =>
    host.run(() => runSuccessfully(runCall(bench, network, verb, container))).ms;
  return { add: (container) => call("add", container), del: (container) => call("del", container) };
}

/** Attaches and detaches one container. */
export function addAndDel(side: Contender, container: BenchContainer): { readonly add: number; readonly del: number } {
  return { add: side.add(container), del: side.del(container) };
}
