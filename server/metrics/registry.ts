/** @see docs/metrics.md @module */
import {
  Counter,
  Gauge,
  Histogram,
  type OpenMetricsContentType,
  openMetricsContentType,
  prometheusContentType,
  Registry,
} from "prom-client";
import type { CallReport, CountReport } from "../reports.ts";

// The first is for the fastest served call, the last for one that waits for a lock.
const DURATION_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

export interface Sample {
  readonly labels?: Readonly<Record<string, string>>;
  readonly value: number;
}

const GAUGES = {
  cni_addresses: {
    help: "Addresses of host-local, by network, pool and state (used, free)",
    labels: ["network", "pool", "state"],
  },
  cni_attachments: { help: "Attachments that the cache has", labels: ["network"] },
  cni_cluster_nodes: { help: "Other nodes of the cluster that are known", labels: [] },
  cni_cluster_routes: { help: "Routes to ranges of other nodes that the kernel has, by way", labels: ["way"] },
  cni_cluster_problems: { help: "Nodes that are not reached, and other problems of the cluster's network", labels: [] },
  cni_cluster_heard_timestamp_seconds: { help: "When the API server was last heard", labels: [] },
  cni_policies: { help: "NetworkPolicies of the cluster that are known", labels: [] },
  cni_policy_pods: { help: "Attached pods of this node, by what policy makes of them", labels: ["state"] },
  cni_policy_peers: { help: "Pods that are known, of this node and of others", labels: [] },
  cni_policy_sets: { help: "Sets of peers and ports in the kernel", labels: [] },
  cni_policy_elements: { help: "Addresses, blocks and ports in these sets", labels: [] },
  cni_policy_cut_flows: { help: "Tracked connections that policy forbids", labels: [] },
  cni_policy_problems: { help: "Why policies are not in the kernel", labels: [] },
  cni_policy_heard_timestamp_seconds: { help: "When the API server last told of policies or pods", labels: [] },
  cni_build_info: { help: "Always 1; its labels name the version", labels: ["version"] },
  cni_dhcp_leases: { help: "Leases of the DHCP client by state", labels: ["state"] },
  cni_private_memory_bytes: { help: "Memory that a process shares with no other", labels: ["process"] },
  cni_set_elements: { help: "Elements of sets and maps in the tables of this program", labels: ["table", "set"] },
  cni_workers: { help: "Workers of the server by state", labels: ["state"] },
} as const;

const READ_COUNTERS = {
  cni_policy_dropped_packets_total: { help: "Packets that policy has dropped, by reason", labels: ["reason"] },
  cni_fallbacks_total: { help: "Calls that shims did by themselves, by reason", labels: ["reason"] },
  cni_process_starts_total: { help: "Processes that the server started", labels: ["process"] },
} as const;

const REPORTED_COUNTERS = {
  cni_dns_questions_total: { help: "Questions to the name server by answer", labels: ["answer"] },
  cni_dhcp_messages_total: { help: "Messages of DHCP, sent and received, by type", labels: ["type"] },
  cni_cluster_relists_total: { help: "Times that all nodes were listed anew", labels: [] },
  cni_cluster_repairs_total: { help: "Times that routes or rules of the cluster were put back", labels: [] },
  cni_policy_changes_total: { help: "Changes of policies in the kernel", labels: [] },
  cni_policy_change_seconds_total: { help: "Time from events of the API to the kernel", labels: [] },
  cni_policy_repairs_total: { help: "Times that policies were put back", labels: [] },
  cni_restores_total: { help: "Times that removed rules were put back", labels: [] },
  cni_restore_backoffs_total: {
    help: "Times that rules were not put back at once, as somebody removes them again and again",
    labels: [],
  },
  cni_link_problems_total: { help: "Links found without their address or bridge", labels: [] },
} as const;

export type ReadMetric = keyof typeof GAUGES | keyof typeof READ_COUNTERS;

export interface MetricsRegistry {
  countCall(report: CallReport): void;
  count(report: CountReport): void;
  set(name: ReadMetric, samples: readonly Sample[]): void;
  /** @param accept the header of the request */
  format(accept: string): Promise<{ readonly contentType: string; readonly text: string }>;
}

export function newMetricsRegistry(): MetricsRegistry {
  const text = new Registry();
  const openMetrics = new Registry<OpenMetricsContentType>();
  openMetrics.setContentType(openMetricsContentType);
  const registers = [text, openMetrics];
  const calls = new Counter({
    name: "cni_calls_total",
    help: "Calls that the server did, by program, command and code of the error",
    labelNames: ["program", "command", "code"],
    registers,
  });
  const durations = new Histogram({
    name: "cni_call_duration_seconds",
    help: "How long calls took",
    buckets: DURATION_BUCKETS,
    labelNames: ["program", "command"],
    registers,
  });
  const waits = new Counter({
    name: "cni_call_wait_seconds_total",
    help: "How long calls waited, mostly for the kernel",
    labelNames: ["program", "command"],
    registers,
  });
  const gauges = mapMetrics(GAUGES, (options) => new Gauge({ ...options, registers }));
  gauges.forEach((gauge, name) => clear(name, gauge));
  const readCounters = mapMetrics(READ_COUNTERS, (options) => new Counter({ ...options, registers }));
  const reportedCounters = mapMetrics(REPORTED_COUNTERS, (options) => new Counter({ ...options, registers }));
  return {
    countCall({ program, command, code, seconds, waitSeconds }) {
      calls.inc({ program, command, code: String(code) });
      durations.observe({ program, command }, seconds);
      waits.inc({ program, command }, waitSeconds);
    },
    count: ({ counter, labels = {}, count }) => reportedCounters.get(counter)?.inc(labels, count),
    set(name, samples) {
      const gauge = gauges.get(name);
      const counter = readCounters.get(name);
      if (gauge) clear(name, gauge);
      counter?.reset();
      for (const { labels = {}, value } of samples) {
        gauge?.set(labels, value);
        counter?.inc(labels, value);
      }
    },
    async format(accept) {
      const isOpenMetrics = accept.includes("application/openmetrics-text");
      return {
        contentType: isOpenMetrics ? openMetricsContentType : prometheusContentType,
        text: await (isOpenMetrics ? openMetrics : text).metrics(),
      };
    },
  };
}

/** Without labels it would be 0, and a time that is not known would be 1970. */
function clear(name: string, gauge: Gauge): void {
  gauge.reset();
  if (GAUGES[name as keyof typeof GAUGES].labels.length === 0) gauge.remove();
}

function mapMetrics<T>(
  definitions: Readonly<Record<string, { readonly help: string; readonly labels: readonly string[] }>>,
  create: (options: { name: string; help: string; labelNames: string[] }) => T,
): ReadonlyMap<string, T> {
  return new Map(
    Object.entries(definitions).map((
      [name, { help, labels }],
    ) => [name, create({ name, help, labelNames: [...labels] })]),
  );
}
