/** Finds out why traffic of a network does not flow: first by looking, then by trying. */
import { NetnsError } from "../../ffi/netns/netns.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { CniError, ConfigError } from "../../spec/error.ts";
import type { NetworkConfigList } from "../../spec/network_config_list.ts";
import type { EngineNames, NamedAttachment } from "../../containers/engine_names.ts";
import type { RuntimeContext } from "../../runtime/context.ts";
import { checkAddresses } from "./checks/addresses.ts";
import { checkCluster, tryOtherNodes } from "./checks/cluster.ts";
import { checkFlannel } from "./checks/flannel.ts";
import { checkForeignTranslations } from "./checks/foreign_translations.ts";
import { checkHostForwarding } from "./checks/forwarding.ts";
import { checkForwardChains } from "./checks/forward_chains.ts";
import { checkKubeProxy } from "./checks/kube_proxy.ts";
import { checkFrameChains } from "./checks/frame_chains.ts";
import { checkLeakedState } from "./checks/leaked_state.ts";
import { checkLimits } from "./checks/limits.ts";
import { checkLinks } from "./checks/links.ts";
import { checkLoopbackPorts } from "./checks/loopback_ports.ts";
import { checkMtu } from "./checks/mtu.ts";
import { checkNeighbours } from "./checks/neighbours.ts";
import { checkByPlugins, checkConfiguration, checkDiagnoses, checkPlugins } from "./checks/plugins.ts";
import { checkPolicy } from "./checks/policy.ts";
import { checkPorts } from "./checks/ports.ts";
import { checkResolver } from "./checks/resolver.ts";
import { checkContainerRoutes } from "./checks/routes.ts";
import { checkRoutesBack } from "./checks/routes_back.ts";
import { checkRoutingHooks } from "./checks/routing_hooks.ts";
import { checkRouting } from "./checks/routing.ts";
import { checkRuleset } from "./checks/ruleset.ts";
import { checkStatus } from "./checks/status.ts";
import { tryDuplicates, tryGateways, tryNeighbour, tryUplinkGateway } from "./checks/tries.ts";
import { tryPorts } from "./checks/port_tries.ts";
import { advise, broken, type Finding, warning } from "./finding.ts";
import { remedyForInconclusive } from "./inconclusive.ts";
import { lookUpSubject, type Subject } from "./subject.ts";
import { checkWantedByPlugins } from "./checks/wanted_by_plugins.ts";
import { TryBudget } from "./try_budget.ts";

export interface CheckFinding extends Finding {
  /** `forwarding` */
  readonly check: string;
}

export type ExaminedAttachment = Pick<NamedAttachment, "containerId" | "name" | "ifname" | "netns">;

export interface NetworkDiagnosis {
  readonly network: string;
  /** Path of its configuration; absent for standard input. */
  readonly source?: string;
  readonly containers: readonly string[];
  readonly attachments: readonly ExaminedAttachment[];
  readonly findings: readonly CheckFinding[];
}

type Check = readonly [name: string, run: (subject: Subject, budget: TryBudget) => readonly Finding[]];

const LOOKS: readonly Check[] = [
  ["plugins", checkPlugins],
  ["configuration", checkConfiguration],
  ["links", checkLinks],
  ["wanted by plugins", checkWantedByPlugins],
  ["mtu", checkMtu],
  ["addresses", checkAddresses],
  ["neighbours", checkNeighbours],
  ["container routes", checkContainerRoutes],
  ["host routes", checkRoutesBack],
  ["routing", checkRouting],
  ["forwarding", checkHostForwarding],
  ["ruleset", checkRuleset],
  ["forward chains", checkForwardChains],
  ["routing hooks", checkRoutingHooks],
  ["frame chains", checkFrameChains],
  ["ports", checkPorts],
  ["ports on 127.0.0.1", checkLoopbackPorts],
  ["foreign translations", checkForeignTranslations],
  ["kube-proxy", checkKubeProxy],
  ["cluster", checkCluster],
  ["flannel", checkFlannel],
  ["policy", checkPolicy],
  ["diagnoses", checkDiagnoses],
  ["resolver", checkResolver],
  ["limits", checkLimits],
  ["leaked state", checkLeakedState],
];

/** It repeats what these say of a mistake. */
const CHECK_OF_STATUS: Check = ["STATUS", checkStatus];
const BEFORE_STATUS = ["plugins", "configuration", "limits"];

/** Last, since its messages name no cause. */
const CHECK_OF_PLUGINS: Check = ["CHECK", checkByPlugins];

/** They run only where looking found nothing: else they would report the consequences. */
const TRIES: readonly Check[] = [
  ["gateway", tryGateways],
  ["duplicates on the wire", tryDuplicates],
  ["neighbour", tryNeighbour],
  ["uplink gateway", tryUplinkGateway],
  ["published ports", tryPorts],
];

/** Whatever is wrong on this node, one of the others may be away. */
const TRY_OF_NODES: Check = ["other nodes", tryOtherNodes];

export interface ExamineOptions {
  /** Limits it to the containers in this namespace. */
  readonly netnsPath?: string | undefined;
  readonly names?: EngineNames;
  /** Leaves out the checks that send packets. */
  readonly looksOnly?: boolean;
  /** The time for packets, which all networks share. */
  readonly tryBudget?: TryBudget;
  readonly onProgress?: (done: number, total: number) => void;
}

/** Call it with all plugins loaded. */
export function examineNetwork(
  runtime: RuntimeContext,
  network: NetworkConfigList,
  options: ExamineOptions = {},
): NetworkDiagnosis {
  const { looksOnly = false, tryBudget = new TryBudget(), onProgress = () => {} } = options;
  using resources = new DisposableStack();
  const total = LOOKS.length + 2 + TRIES.length + 1;
  let done = 0;
  const runCounted = (subject: Subject, checks: readonly Check[]) =>
    checks.flatMap((check) => {
      onProgress(done++, total);
      return runCheck(subject, tryBudget, check);
    });
  const subject = tryLookUp(runtime, network, options, resources);
  const isUsable = "host" in subject;
  const findings = isUsable ? runCounted(subject, LOOKS) : [subject];
  const isUnexplained = !findings.some((finding) => isBroken(finding) && BEFORE_STATUS.includes(finding.check));
  if (isUsable && isUnexplained) {
    // It names its plugin before what another check may have found, too.
    const isNew = ({ what }: CheckFinding) => !findings.some((finding) => what.endsWith(finding.what));
    findings.push(...runCounted(subject, [CHECK_OF_STATUS]).filter(isNew));
  }
  const stages = isUsable ? [[CHECK_OF_PLUGINS], ...looksOnly ? [] : [TRIES]] : [];
  for (const stage of stages) if (!findings.some(isBroken)) findings.push(...runCounted(subject as Subject, stage));
  if (isUsable && !looksOnly) findings.push(...runCounted(subject, [TRY_OF_NODES]));
  return {
    network: network.name,
    ...network.source !== undefined && { source: network.source },
    containers: isUsable ? subject.containers.map(({ attachment }) => attachment.netns) : [],
    attachments: isUsable ? subject.containers.map(describeExamined) : [],
    findings,
  };
}

function describeExamined({ attachment }: Subject["containers"][number]): ExaminedAttachment {
  const { containerId, name, ifname, netns } = attachment;
  return { containerId, ...name !== undefined && { name }, ifname, netns };
}

export function isBroken({ severity }: Pick<Finding, "severity">): boolean {
  return severity === "broken";
}

function tryLookUp(
  runtime: RuntimeContext,
  network: NetworkConfigList,
  { netnsPath, names }: ExamineOptions,
  resources: DisposableStack,
): Subject | CheckFinding {
  try {
    return lookUpSubject(runtime, network, netnsPath, resources, names);
  } catch (error) {
    if (!(error instanceof ConfigError || error instanceof CniError)) throw error;
    return { check: "configuration", ...unusableConfiguration(network, error) };
  }
}

function unusableConfiguration({ source }: NetworkConfigList, { message }: Error): Finding {
  const what = `the configuration cannot be used: ${message}`;
  return broken(what, advise(source === undefined ? "correct it" : `correct ${source}`));
}

/** One check that the kernel refuses stops no other. */
function runCheck(subject: Subject, tryBudget: TryBudget, [check, run]: Check): CheckFinding[] {
  try {
    return run(subject, tryBudget).map((finding) => ({ check, ...finding }));
  } catch (error) {
    if (error instanceof ConfigError) return [{ check, ...unusableConfiguration(subject.network, error) }];
    // A namespace may go meanwhile.
    if (!(error instanceof SystemError || error instanceof CniError || error instanceof NetnsError)) throw error;
    const remedy = remedyForInconclusive(error, subject.network.name) ?? `cni doctor ${subject.network.name}`;
    return [{ check, ...warning(`this check was not possible: ${error.message}`, remedy) }];
  }
}
