/** Each part's process loads this alone. @module */
import { logMessage } from "./call_log.ts";
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

export const PART_PROGRAMS: Readonly<Record<string, PartProgram>> = {
  async dhcp({ directory, logFormat }) {
    const { serveDhcp } = await import("../plugins/dhcp/server/serve.ts");
    const { listener, lifetime, reports, work } = PART_DESCRIPTORS;
    serveDhcp({
      listener,
      lifetime,
      stateDirectory: partPaths(directory, "dhcp").state,
      log: (message) => logMessage(logFormat, message),
      tellWork: workTeller(work, "dhcp"),
      countMessage: (type) => sendReport(reports, { counter: "cni_dhcp_messages_total", labels: { type }, count: 1 }),
    });
  },
  async dnsname({ directory, logFormat }) {
    const { serveNames } = await import("../plugins/dnsname/server/serve_names.ts");
    const { listener, lifetime, reports, work } = PART_DESCRIPTORS;
    serveNames({
      listener,
      lifetime,
      stateDirectory: partPaths(directory, "dnsname").state,
      log: (message) => logMessage(logFormat, message),
      tellWork: workTeller(work, "dnsname"),
      count: (answer, count) => sendReport(reports, { counter: "cni_dns_questions_total", labels: { answer }, count }),
    });
  },
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
      log: (message) => logMessage(logFormat, message),
      tellWork: workTeller(PART_DESCRIPTORS.work, "heal"),
      count: (counter) => sendReport(PART_DESCRIPTORS.reports, { counter: HEALING_METRICS[counter], count: 1 }),
    });
  },
  async metrics(settings) {
    const { serveMetrics } = await import("./metrics/serve.ts");
    await serveMetrics(settings, PART_DESCRIPTORS);
  },
};
