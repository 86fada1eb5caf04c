import type { AttachmentCall } from "../lib/protocol/plugin.ts";
import type { JsonObject } from "../../spec/schema.ts";
import { CniError } from "../../spec/error.ts";
import type { Cidr } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { isGone } from "../lib/links/address_claim.ts";
import { findHostLink } from "../lib/links/host_links.ts";
import { describeOwner, type Owner, ownerPrefix, parseAlias, sameOwner } from "../lib/model/owner.ts";
import type { FoundElement } from "../lib/ruleset/element_lookup.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { ensureElements, removeElements, removeElementsOf, restoreElements } from "../lib/ruleset/elements.ts";
import { inetTable } from "../lib/ruleset/inet_table.ts";
import { ElementInUseError } from "../lib/ruleset/wanted_elements.ts";
import type { PortmapConfig } from "./config.ts";
import { flushStaleFlows, flushWithdrawnFlows } from "./conntrack_flush.ts";
import { publishedElements } from "./elements.ts";
import { parsePortElement } from "../lib/ruleset/port_elements.ts";
import { portFailover } from "./failover.ts";
import { portTable } from "./port_table.ts";
import { findLoopbackSource } from "./loopback.ts";
import { refuseListeners } from "./listeners.ts";
import { ForgottenPortError, ForgottenPorts, markComplete } from "./remembered_ports.ts";
import { HOST_PORT_TAKEN, HostPortTakenError, refusePortConflicts } from "./port_conflicts.ts";

const PURPOSE = "ports";

export type PortmapCall = AttachmentCall<JsonObject>;

function unlessPortInUseAllowed({ log }: PortmapCall, { hostPortInUse }: PortmapConfig, check: () => void): void {
  if (hostPortInUse === "ignore") return;
  try {
    check();
  } catch (error) {
    if (hostPortInUse !== "warn" || !(error instanceof CniError && error.code === HOST_PORT_TAKEN)) throw error;
    log(`hostPortInUse is "warn", continuing: ${error.message}`);
  }
}

/** @returns descriptions of what was missing */
export function publishPorts(
  call: PortmapCall,
  config: PortmapConfig,
  addresses: readonly Cidr[],
  mode: "add" | "restore",
): string[] {
  const { host, owner, log } = call;
  const { mappings } = config;
  // Restored ports never ceased to be the container's.
  const isRestore = mode === "restore";
  const applyElements = isRestore ? restoreElements : ensureElements;
  let areListenersChecked = isRestore;
  const forgottenPorts = new ForgottenPorts(call);
  let completeAt: number | undefined;
  const checkConflicts = () => {
    unlessPortInUseAllowed(call, config, () => {
      refusePortConflicts(host.nft, owner, mappings, addresses);
      completeAt = undefined;
      if (isRestore) return;
      attemptOrLog(log, "ask which ports cached attachments have", () => {
        completeAt = forgottenPorts.refuse(elements);
      });
    });
    if (areListenersChecked) return;
    areListenersChecked = true;
    const refuse = () => refuseListeners(host.diag, call, mappings, addresses);
    unlessPortInUseAllowed(
      call,
      config,
      () => attemptOrLog(log, "check whether programs listen on the host ports", refuse),
    );
  };
  const hasVeth = hasOwnHostVeth(call);
  const source = findLoopbackSource(host, config, addresses);
  const elements = publishedElements(config, addresses, source).map((element) =>
    hasVeth ? { ...element, note: VETH } : element
  );
  for (;;) {
    try {
      const changed = applyElements(host.nft, portTable, owner, elements, { checkConflicts, log });
      if (completeAt !== undefined) markComplete(host.nft, completeAt + 1);
      return changed;
    } catch (error) {
      const taken = error instanceof ElementInUseError
        ? new HostPortTakenError(error.element.title, error.found, "it", error)
        : error;
      if (!(taken instanceof HostPortTakenError) || taken instanceof ForgottenPortError) throw taken;
      const { occupant } = taken;
      const reason = occupantGoneReason(call, occupant);
      if (reason === undefined) throw taken;
      log(`Withdrawing the ports of ${describeOwner(occupant.owner!)}, which is gone: ${reason}`);
      // Its record may be lost, so search.
      const gone = occupant.owner!;
      removePublishedPortsOfNetwork(host, gone.network, (owner) => sameOwner(owner, gone), log);
    }
  }
}

/** The note on elements whose owner has a host veth (bridge, ptp): without that veth, the container is gone. */
const VETH = "veth";

function hasOwnHostVeth({ host, owner, prevResult }: PortmapCall): boolean {
  return prevResult?.interfaces?.some(({ name, sandbox }) =>
    !sandbox && sameOwner(parseAlias(findHostLink(host, name)?.alias), owner)
  ) === true;
}

/**
 * `undefined` if the container may live. Only a host veth is proof: processes may be in a namespace whose path is gone or mounted elsewhere.
 */
function occupantGoneReason(call: PortmapCall, { owner, note }: HostPortTakenError["occupant"]): string | undefined {
  if (!owner) return undefined;
  if (note?.startsWith(VETH)) return isGone(call.host, owner) ? "its interface is gone" : undefined;
  return call.goneReason?.(owner);
}

/** Flushes flows of former holders, and of the time without a holder. */
export function flushEarlierFlows(
  { host, log }: PortmapCall,
  { mappings }: PortmapConfig,
  addresses: readonly Cidr[],
): void {
  const flush = () => flushStaleFlows(host, mappings, addresses);
  attemptOrLog(log, "flush conntrack flows of former owners of the ports", flush);
}

export function removePublishedPorts(host: Netns, owner: Owner, log?: (message: string) => void): void {
  const failover = portFailover(host, owner.containerId);
  flushRemoved(host, removeElementsOf(host.nft, inetTable, PURPOSE, owner, failover), log);
}

export function removePublishedPortsOfNetwork(
  host: Netns,
  network: string,
  isOwned: (owner: Owner) => boolean,
  log: (message: string) => void,
): void {
  const failover = portFailover(host);
  flushRemoved(host, removeElements(host.nft, inetTable, PURPOSE, ownerPrefix(network), isOwned, failover), log);
}

function flushRemoved(host: Netns, removed: readonly FoundElement[], log?: (message: string) => void): void {
  const ports = removed.flatMap((element) => parsePortElement(element) ?? []);
  attemptOrLog(log, "flush conntrack flows of former containers", () => flushWithdrawnFlows(host, ports));
}

function attemptOrLog(log: ((message: string) => void) | undefined, purpose: string, call: () => void): void {
  try {
    call();
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    log?.(`Cannot ${purpose}, continuing without: ${error.message}`);
  }
}
