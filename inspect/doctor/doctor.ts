import { SystemError } from "../../ffi/sys/error.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { NetworkConfigList } from "../../spec/network_config_list.ts";
import { suggestion } from "../../spec/suggest.ts";
import { listAttachments } from "../../runtime/attachments.ts";
import type { RuntimeContext } from "../../runtime/context.ts";
import { type RuntimeOptions, withRuntimeContext } from "../../runtime/runtime.ts";
import { type CheckFinding, examineNetwork, type ExamineOptions, isBroken, type NetworkDiagnosis } from "./examine.ts";
import { advise, broken } from "./finding.ts";
import type { UnusableFile } from "./networks_to_examine.ts";
import { applyRepair } from "./repair.ts";
import { isSameNetns } from "./subject.ts";
import { TryBudget } from "./try_budget.ts";

export interface DoctorReport {
  readonly broken: number;
  readonly warnings: number;
  readonly networks: readonly NetworkDiagnosis[];
  readonly repairs?: readonly RepairOutcome[];
}

/**
 * Call it with all plugins and their docs loaded.
 *
 * @param examineOptions its `onProgress` gets equal numbers in the end
 * @throws {CniError} if nothing of the network is attached there
 */
export function runDoctor(
  options: RuntimeOptions,
  networks: readonly (NetworkConfigList | UnusableFile)[],
  examineOptions: ExamineOptions = {},
): DoctorReport {
  const { netnsPath, tryBudget = new TryBudget(), onProgress = () => {} } = examineOptions;
  return withRuntimeContext(options, (runtime) => {
    const diagnoses = networks.map((network, i) => {
      if (!("name" in network)) return describeUnusableFile(network);
      if (netnsPath !== undefined) requireAttached(runtime, network, netnsPath);
      return examineNetwork(runtime, network, {
        ...examineOptions,
        tryBudget,
        onProgress: (done, total) => onProgress(i * total + done, networks.length * total),
      });
    });
    onProgress(1, 1);
    const findings = diagnoses.flatMap((diagnosis) => diagnosis.findings);
    return {
      broken: findings.filter(isBroken).length,
      warnings: findings.filter(({ severity }) => severity === "warning").length,
      networks: diagnoses,
    };
  });
}

function describeUnusableFile({ source, problem }: UnusableFile): NetworkDiagnosis {
  return {
    network: "",
    source,
    containers: [],
    attachments: [],
    findings: [{ check: "configuration", ...broken(problem, advise(`correct ${source}, or move it elsewhere`)) }],
  };
}

function requireAttached(
  { cacheDirectory, hostContext, log }: RuntimeContext,
  { name }: NetworkConfigList,
  netnsPath: string,
): void {
  const attachments = listAttachments(cacheDirectory, hostContext, name, log);
  const paths = [...new Set(attachments.flatMap(({ netns }) => netns ?? []))];
  if (paths.some((path) => isSameNetns(path, netnsPath))) return;
  const details = paths.length === 0
    ? `nothing is attached to it: cni run add ${name} ${netnsPath}`
    : `attached are ${paths.map((path) => `"${path}"`).join(", ")}`;
  const message = `Namespace "${netnsPath}" is not attached to network "${name}"${suggestion(netnsPath, paths)}`;
  throw new CniError(Code.UnknownContainer, message, { details });
}

export interface RepairOutcome {
  readonly finding: CheckFinding;
  readonly outcome: "done" | "declined" | "failed";
  readonly reason?: string;
}

/** Does what findings offer, and looks again: some changes make others possible. @param confirm asked before each change */
export function repairAll(
  options: RuntimeOptions,
  examine: () => DoctorReport,
  confirm: (finding: CheckFinding) => boolean,
): DoctorReport & { readonly repairs: readonly RepairOutcome[] } {
  const outcomes = new Map<string, RepairOutcome>();
  for (;;) {
    const report = examine();
    const findings = report.networks.flatMap((diagnosis) => diagnosis.findings)
      .filter(({ repair }) => repair && !outcomes.has(JSON.stringify(repair)));
    if (findings.length === 0) return { ...withoutTried(report, outcomes), repairs: [...outcomes.values()] };
    for (const finding of findings) {
      const key = JSON.stringify(finding.repair);
      if (!outcomes.has(key)) outcomes.set(key, repairFinding(options, finding, confirm));
    }
  }
}

/** What was tried and did not help is no offer any more. */
function withoutTried(report: DoctorReport, outcomes: ReadonlyMap<string, RepairOutcome>): DoctorReport {
  const isTried = ({ repair }: CheckFinding) =>
    ["done", "failed"].includes(outcomes.get(JSON.stringify(repair))?.outcome ?? "");
  const networks = report.networks.map((diagnosis) => ({
    ...diagnosis,
    findings: diagnosis.findings.map((finding) => {
      const { repair: _, ...others } = finding;
      return isTried(finding) ? others : finding;
    }),
  }));
  return { ...report, networks };
}

function repairFinding(
  options: RuntimeOptions,
  finding: CheckFinding,
  confirm: (finding: CheckFinding) => boolean,
): RepairOutcome {
  const { repair } = finding;
  if (!repair || !confirm(finding)) {
    return { finding, outcome: "declined", ...finding.mayDisconnect && { reason: "it can cut off a remote login" } };
  }
  try {
    withRuntimeContext(options, (runtime) => applyRepair(runtime, repair));
    return { finding, outcome: "done" };
  } catch (error) {
    if (!(error instanceof SystemError || error instanceof CniError)) throw error;
    return { finding, outcome: "failed", reason: error.message };
  }
}
