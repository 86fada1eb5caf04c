/** Each part's process loads this alone. @module */
import { messageLogger } from "./call_log.ts";
import { partPaths } from "./part_definitions.ts";
import { PART_DESCRIPTORS, type PartSettings } from "./part_settings.ts";
import { workTeller } from "./part_work.ts";
import { sendReport } from "./reports.ts";

type PartProgram = (settings: PartSettings) => Promise<void>;

const HEALING_METRICS = {
  restores: "cni_restores_total",
  backoffs: "cni_restore_backoffs_total",
  linkProblems: "cni_link_problems_total",
} as const;

const CLUSTER_METRICS = {
  relists: "cni_cluster_relists_total",
  repairs: "cni_cluster_repairs_total",
} as const;

const POLICY_METRICS = {
  changes: "cni_policy_changes_total",
  changeSeconds: "cni_policy_change_seconds_total",
  repairs: "cni_policy_repairs_total",
} as const;

/** @param label of the counter, for what the plugin counts */
function pluginPart(name: string, counter: string, label: string): PartProgram {
  return async ({ directory, logFormat }) => {
    const { findModel, loadPlugins } = await import("../plugins/registry.ts");
    await loadPlugins([name]);
    const { listener, lifetime, reports, work } = PART_DESCRIPTORS;
    await findModel(name)!.serve!({
      listener,
      lifetime,
      stateDirectory: partPaths(directory, name).state,
      log: messageLogger(logFormat),
      tellWork: workTeller(work, name),
      count: (kind, count) => sendReport(reports, { counter, labels: { [label]: kind }, count }),
    });
  };
}

export const PART_PROGRAMS: Readonly<Record<string, PartProgram>> = {
  async cluster({ cluster, directory, confDirectory, pluginDirectories, cacheDirectories, logFormat }) {
    const { serveCluster } = await import("../cluster/serve_cluster.ts");
    const { lifetime, account, reports } = PART_DESCRIPTORS;
    await serveCluster({
      ...cluster!,
      accountDirectory: `/proc/self/fd/${account}`,
      stateDirectory: partPaths(directory, "cluster").state,
      confDirectory,
      pluginDirectories,
      cacheDirectories,
      lifetime,
      log: messageLogger(logFormat),
      count: (counter) => sendReport(reports, { counter: CLUSTER_METRICS[counter], count: 1 }),
    });
  },
  async policy({ policy, directory, cacheDirectories, logFormat }) {
    const { servePolicy } = await import("../policy/serve_policy.ts");
    const { lifetime, account, reports } = PART_DESCRIPTORS;
    await servePolicy({
      ...policy!,
      accountDirectory: `/proc/self/fd/${account}`,
      stateDirectory: partPaths(directory, "policy").state,
      clusterDirectory: partPaths(directory, "cluster").state,
      cacheDirectories,
      lifetime,
      log: messageLogger(logFormat),
      count: (counter, count) => sendReport(reports, { counter: POLICY_METRICS[counter], count }),
    });
  },
  dhcp: pluginPart("dhcp", "cni_dhcp_messages_total", "type"),
  dnsname: pluginPart("dnsname", "cni_dns_questions_total", "answer"),
  async heal({ cacheDirectories, pluginDirectories, healLinks, logFormat }) {
    const [{ serveHealing }, { loadPlugins }] = [
      await import("../heal/serve_healing.ts"),
      await import("../plugins/registry.ts"),
    ];
    await loadPlugins();
    serveHealing({
      env: process.env,
      cacheDirectories,
      pluginDirectories,
      healLinks,
      lifetime: PART_DESCRIPTORS.lifetime,
      log: messageLogger(logFormat),
      tellWork: workTeller(PART_DESCRIPTORS.work, "heal"),
      count: (counter) => sendReport(PART_DESCRIPTORS.reports, { counter: HEALING_METRICS[counter], count: 1 }),
    });
  },
  async metrics(settings) {
    const { serveMetrics } = await import("./metrics/serve.ts");
    await serveMetrics(settings, PART_DESCRIPTORS);
  },
};
