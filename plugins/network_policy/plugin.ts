/** The `network-policy` plugin: the pod's NetworkPolicies are in the kernel when ADD returns. @module */
import type { Ip } from "../../ffi/address.ts";
import { deleteFlowsInPieces } from "../../ffi/conntrack/conntrack.ts";
import { mayHaveEntriesOf } from "../../ffi/conntrack/procfs.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import * as link from "../../ffi/route/link.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { logRemoval, ownerPrefix, ownerRestoreHint, staleOwnerFilter } from "../lib/model/owner.ts";
import type { PluginModel } from "../lib/model/plugin_model.ts";
import type { AttachRequest } from "../lib/policy/attach_request.ts";
import { attachedAddressOf } from "../lib/policy/attached_pods.ts";
import { bridgeGuardElements, guardElements } from "../lib/policy/guard_elements.ts";
import { policyNamespacesPath, readPolicyNamespaces } from "../lib/policy/stored_namespaces.ts";
import {
  applyVerdicts,
  applyVerdictsInstead,
  closedVerdict,
  isIsolationMissing,
  releaseVerdicts,
  restoreIsolation,
} from "../lib/policy/verdicts.ts";
import { checkFailedError } from "../lib/protocol/check_failed.ts";
import { type AttachmentCall, plugin, requirePrevResult } from "../lib/protocol/plugin.ts";
import type { FoundElement } from "../lib/ruleset/element_lookup.ts";
import {
  checkElements,
  ensureElements,
  removeElements,
  removeElementsOf,
  restoreElements,
} from "../lib/ruleset/elements.ts";
import { removeRulesIfSupported } from "../lib/ruleset/nf_tables_support.ts";
import {
  CLOSED_CHAIN,
  POD_LINK_GROUP,
  POLICY_PURPOSE,
  policyBridgeTable,
  policyTable,
} from "../lib/ruleset/policy_tables.ts";
import { requireTable, type TableDefinition } from "../lib/ruleset/table.ts";
import { askForWrongVerdicts, askPart, askToDeleteFlows, deleteFlowsUntilMs, isPartSynced } from "./ask_part.ts";
import { type NetworkPolicyConfig, networkPolicyConfig } from "./config.ts";
import { type AttachedPod, findPod } from "./pod.ts";

type Call = AttachmentCall<NetworkPolicyConfig>;

export default plugin({
  name: "network-policy",
  about: "Enforces NetworkPolicy from a pod's first packet on",
  config: networkPolicyConfig,
  // Others are for other plugins.
  args: "all",
  hasRulesOnly: true,
  model: (): PluginModel => require("./model.ts").default,
  needsPrevResult: () => true,

  add(call) {
    const { host, owner, log, undo } = call;
    const result = requirePrevResult(call, "network-policy");
    const pod = findPod(call, result);
    if (pod.bridge !== undefined) loadRouter().requireRouter(host, pod, pod.bridge);
    if (joinGroup(host, pod)) {
      undo.defer(() => void ignoreErrors(["ENODEV"], () => link.set(host.route, pod.index, { group: 0 })));
    }
    undo.defer(() => {
      // A server that is busy would keep the chain from undoing.
      const released = releasePod(host, (table) => removeElementsOf(host.nft, table, POLICY_PURPOSE, owner));
      deleteFlowsOf(host, released);
    });
    ensureElements(host.nft, policyTable, owner, guardElements(pod), { log });
    ensureElements(host.nft, policyBridgeTable, owner, bridgeGuardElements(pod), { log });
    const isPod = call.args.K8S_POD_NAMESPACE !== undefined;
    applyVerdicts(host.nft, isPod ? closedVerdicts(call, pod) : openVerdicts(pod));
    // A container that had these addresses before may have left some.
    const areFlowsDeleted = isPod && openWhenKnown(call, pod);
    if (!areFlowsDeleted) deleteFlowsOf(host, pod.ips);
    return result;
  },

  del(call) {
    const { host, owner } = call;
    removeRulesIfSupported(
      host,
      true,
      (nl) => removePod(call, (table) => removeElementsOf(nl, table, POLICY_PURPOSE, owner)),
    );
  },

  check(call) {
    const { host, owner } = call;
    const pod = findPod(call, requirePrevResult(call, "network-policy"));
    if (pod.group === 0) {
      throw checkFailedError(
        `link "${pod.link}" is in group 0, so its sources are not checked`,
        ownerRestoreHint(owner),
      );
    }
    checkElements(host.nft, policyTable, owner, guardElements(pod));
    checkElements(host.nft, policyBridgeTable, owner, bridgeGuardElements(pod));
    if (pod.port && isIsolationMissing(host.nft, pod.ips, pod.link)) {
      throw checkFailedError(
        `port "${pod.link}" is not in set "isolated", as its policies ask`,
        ownerRestoreHint(owner),
      );
    }
    if (call.args.K8S_POD_NAMESPACE === undefined) return;
    const wrong = askForWrongVerdicts(call.config.socketPath, pod.ips);
    if (wrong.length > 0) {
      throw checkFailedError(
        `policies that "cni serve" has put into the kernel are not there: ${wrong.join(", ")}`,
        'it puts them back within a minute; see its log, and "nft list table inet cni_policy"',
      );
    }
  },

  restore(call) {
    const { host, owner } = call;
    const pod = findPod(call, requirePrevResult(call, "network-policy"));
    const group = joinGroup(host, pod) ? [`group of "${pod.link}"`] : [];
    const restored = [
      ...restoreElements(host.nft, policyTable, owner, guardElements(pod)),
      ...restoreElements(host.nft, policyBridgeTable, owner, bridgeGuardElements(pod)),
    ];
    return [...group, ...restored, ...restoreVerdicts(call, pod, restored.length > 0)];
  },

  gc(call) {
    const { host, pluginConfig: { name }, validAttachments, log } = call;
    const isStale = staleOwnerFilter(name, validAttachments, logRemoval(log, "the guard"));
    removeRulesIfSupported(
      host,
      true,
      (nl) => removePod(call, (table) => removeElements(nl, table, POLICY_PURPOSE, ownerPrefix(name), isStale)),
    );
  },

  status({ host }) {
    requireTable(host.nft, policyTable);
    requireTable(host.nft, policyBridgeTable);
  },
});

/** For pods on bridges alone. */
function loadRouter(): typeof import("./router.ts") {
  return require("./router.ts");
}

/** Rules for what pods send do not see packets of group 0. Another one may be somebody's. */
function joinGroup(host: Netns, { index, group }: AttachedPod): boolean {
  if (group !== 0) return false;
  link.set(host.route, index, { group: POD_LINK_GROUP });
  return true;
}

function closedVerdicts({ args }: Call, { ips, link, port }: AttachedPod) {
  const comment = `${args.K8S_POD_NAMESPACE}/${args.K8S_POD_NAME}`;
  return ips.map((ip) => closedVerdict(ip, comment, port && link));
}

const openVerdicts = ({ ips, link, port }: AttachedPod) => ips.map((ip) => ({ ip, comment: "", port: port && link }));

/**
 * Returns once the pod's policies are in the kernel, or are not to be known now.
 *
 * @returns whether flows of who had its addresses are deleted
 */
function openWhenKnown(call: Call, pod: AttachedPod): boolean {
  const { config: { socketPath, waitMs }, host, log } = call;
  const question = questionOf(call, pod);
  const { namespace, name } = question;
  const request = { ...question, deleteFlowsUntilMs: deleteFlowsUntilMs(waitMs) };
  const answer = askPart(socketPath, request, waitMs);
  // The part has replaced verdicts meanwhile.
  host.nft.deferClose?.();
  if ("state" in answer) {
    if (answer.state === "closed") log(`Pod ${namespace}/${name} starts closed: its policies are not known yet`);
    return answer.areFlowsDeleted;
  }
  // The stored policies may be old. Who is late opens the pod.
  if (answer.isLate) {
    log(`Pod ${namespace}/${name} starts closed until "cni serve" tells its policies: ${answer.problem}`);
    return false;
  }
  const isIsolated = mayBeIsolated(call);
  log(
    `Pod ${namespace}/${name} starts ${isIsolated ? "closed" : "open"}, ` +
      `as the policies in "${storedPath(call)}" say: "cni serve" did not tell its policies: ${answer.problem}`,
  );
  if (!isIsolated) applyVerdictsInstead(host.nft, CLOSED_CHAIN, openVerdicts(pod));
  return false;
}

function questionOf({ args, containerId }: Call, { link, ips }: AttachedPod): AttachRequest {
  const { K8S_POD_NAMESPACE: namespace = "", K8S_POD_NAME: name = "", K8S_POD_UID: uid } = args;
  return { namespace, name, ...uid && { uid }, interface: link, ips, container: containerId };
}

/** Whether a stored policy is in its namespace. If none were ever stored, nothing is known. */
function mayBeIsolated(call: Call): boolean {
  const namespaces = readPolicyNamespaces(storedPath(call), call.log);
  return namespaces?.has(call.args.K8S_POD_NAMESPACE ?? "") ?? true;
}

const storedPath = ({ config: { dataDir } }: Call): string => policyNamespacesPath(dataDir);

/** The server's part puts policies back if it has them. Otherwise, only the stored ones are known. */
function restoreVerdicts(call: Call, pod: AttachedPod, isLost: boolean): string[] {
  const { config: { socketPath }, args, host } = call;
  if (isLost && args.K8S_POD_NAMESPACE !== undefined) {
    if (!isPartSynced(socketPath) && mayBeIsolated(call)) {
      applyVerdictsInstead(host.nft, undefined, closedVerdicts(call, pod));
    }
    // One that has started since did not know the pod, and one that is only slow looks at it again.
    askPart(socketPath, questionOf(call, pod), 0);
  }
  return pod.port && restoreIsolation(host.nft, pod.ips, pod.link) ? [`isolation of port "${pod.link}"`] : [];
}

type RemoveGuard = (table: TableDefinition) => readonly FoundElement[];

function removePod({ host, config: { socketPath } }: Pick<Call, "host" | "config">, removeGuard: RemoveGuard): void {
  const released = releasePod(host, removeGuard);
  // Flows of UDP last as long as anybody sends.
  if (released.length > 0 && !askToDeleteFlows(socketPath, released)) deleteFlowsOf(host, released);
}

/** @param removeGuard removes the owner's elements of a table @returns addresses that nobody has now */
function releasePod(host: Netns, removeGuard: RemoveGuard): readonly Ip[] {
  const addressesIn = (table: TableDefinition) => removeGuard(table).flatMap((each) => attachedAddressOf(each) ?? []);
  const ports = new Map(addressesIn(policyBridgeTable).map((each) => [each.ip, each.interface]));
  const ips = addressesIn(policyTable).map(({ ip }) => ip);
  const all = [...new Set([...ips, ...ports.keys()])];
  if (all.length === 0) return [];
  return releaseVerdicts(host.nft, all.map((ip) => ({ ip, comment: "", port: ports.get(ip) })));
}

function deleteFlowsOf(host: Netns, ips: readonly Ip[]): void {
  if (!host.run(() => mayHaveEntriesOf(ips))) return;
  for (const _ of deleteFlowsInPieces(host.nft, new Set(ips)));
}
