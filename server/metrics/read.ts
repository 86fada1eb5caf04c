import { findEntryNames } from "../../ffi/sys/directory.ts";
import { findText } from "../../ffi/sys/file.ts";
import { currentNetns } from "../../ffi/netns/netns.ts";
import { countAttachments, measurePools, measureSets } from "./measure.ts";
import { countDrops } from "../../plugins/lib/policy/drops.ts";
import { Runtime } from "../../runtime/runtime.ts";
import { findClusterStatus } from "../../cluster/status.ts";
import { findPolicyStatus, type PolicyStatus } from "../../policy/status.ts";
import { programVersion } from "../../program/version.ts";
import { partPaths } from "../part_definitions.ts";
import type { PartSettings } from "../part_settings.ts";
import { askServer, QUESTIONS } from "../sockets.ts";
import type { ServerStatus } from "../status.ts";
import type { MetricsRegistry, ReadMetric, Sample } from "./registry.ts";

type Log = (message: string) => void;

export function readMetrics(registry: MetricsRegistry, settings: PartSettings, log: Log): void {
  const read = (name: ReadMetric, samples: () => readonly Sample[]) => {
    try {
      registry.set(name, samples());
    } catch (error) {
      log(`${name}: ${error instanceof Error ? error.message : error}`);
    }
  };
  const { cacheDirectories, confDirectory, directory, socket } = settings;
  const status = findServerStatus(socket);
  read("cni_build_info", () => [{ labels: { version: programVersion() }, value: 1 }]);
  read("cni_addresses", () => poolSamples(cacheDirectories, confDirectory, log));
  read(
    "cni_attachments",
    () => [...countAttachments(cacheDirectories)].map(([network, value]) => ({ labels: { network }, value })),
  );
  read("cni_dhcp_leases", () => leaseSamples(partPaths(directory, "dhcp").state));
  const cluster = settings.cluster && findClusterStatus(partPaths(directory, "cluster").state);
  if (cluster) {
    const { nodes, routes, problems, heardAtMs } = cluster;
    read("cni_cluster_nodes", () => [{ value: nodes }]);
    read("cni_cluster_routes", () => Object.entries({ ...routes }).map(([way, value]) => ({ labels: { way }, value })));
    read("cni_cluster_problems", () => [{ value: problems.length }]);
    read("cni_cluster_heard_timestamp_seconds", () => heardAtMs === undefined ? [] : [{ value: heardAtMs / 1000 }]);
  }
  const policy = settings.policy && findPolicyStatus(partPaths(directory, "policy").state);
  if (policy) { for (const [name, samples] of policySamples(policy)) read(name, () => samples); }
  if (settings.policy) {
    read("cni_policy_dropped_packets_total", () => {
      using host = currentNetns();
      return [...countDrops(host.nft)].map(([reason, value]) => ({ labels: { reason }, value }));
    });
  }
  read("cni_set_elements", () => {
    using host = currentNetns();
    return measureSets(host.nft).map(({ table, set, elements }) => ({ labels: { table, set }, value: elements }));
  });
  if (!status) return;
  read("cni_workers", () => countBy(status.workers.map(({ state }) => state), "state"));
  read(
    "cni_fallbacks_total",
    () => Object.entries(status.fellBack).map(([reason, value]) => ({ labels: { reason: snakeCase(reason) }, value })),
  );
  read(
    "cni_process_starts_total",
    () => Object.entries(status.starts).map(([process, value]) => ({ labels: { process }, value })),
  );
  read("cni_private_memory_bytes", () => memorySamples(status));
}

function policySamples(
  { policies, peers, pods, isolatedPods, closedPods, sets, elements, cutFlows, problems, heardAtMs }: PolicyStatus,
): [ReadMetric, readonly Sample[]][] {
  const states = { closed: closedPods.length, isolated: isolatedPods, open: pods - isolatedPods - closedPods.length };
  return [
    ["cni_policies", [{ value: policies }]],
    ["cni_policy_pods", Object.entries(states).map(([state, value]) => ({ labels: { state }, value }))],
    ["cni_policy_peers", [{ value: peers }]],
    ["cni_policy_sets", [{ value: sets }]],
    ["cni_policy_elements", [{ value: elements }]],
    ["cni_policy_cut_flows", [{ value: cutFlows }]],
    ["cni_policy_problems", [{ value: problems.length }]],
    ["cni_policy_heard_timestamp_seconds", heardAtMs === undefined ? [] : [{ value: heardAtMs / 1000 }]],
  ];
}

const snakeCase = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

function findServerStatus(socket: string): ServerStatus | undefined {
  const answer = askServer(socket, QUESTIONS.status);
  return answer === undefined ? undefined : JSON.parse(answer);
}

function poolSamples(cacheDirectories: readonly string[], confDirectory: string, log: Log): Sample[] {
  const runtime = new Runtime({ cacheDirectory: cacheDirectories[0]!, pluginDirectories: [], env: {}, log });
  return measurePools(runtime, confDirectory, log).flatMap(({ network, pool, used, free }) => [
    { labels: { network, pool, state: "used" }, value: used },
    { labels: { network, pool, state: "free" }, value: free },
  ]);
}

function leaseSamples(directory: string): Sample[] {
  const names = (findEntryNames(directory) ?? []).filter((name) => name.endsWith(".json"));
  const texts = names.map((name) => findText(`${directory}/${name}`)).filter((text) => text !== undefined);
  return countBy(texts.map((text) => JSON.parse(text).state), "state");
}

function countBy(values: readonly string[], label: string): Sample[] {
  return [...Map.groupBy(values, (value) => value)].map(([value, { length }]) => ({
    labels: { [label]: value },
    value: length,
  }));
}

function memorySamples({ workers, parts, privateBytes }: ServerStatus): Sample[] {
  const sum = (processes: readonly { readonly privateBytes: number }[]) =>
    processes.reduce((total, each) => total + each.privateBytes, 0);
  return [
    { labels: { process: "supervisor" }, value: privateBytes - sum(workers) - sum(parts) },
    { labels: { process: "worker" }, value: sum(workers) },
    ...parts.map(({ name, privateBytes }) => ({ labels: { process: name }, value: privateBytes })),
  ];
}
