/** What plugins share whose result has one interface. @module */
import * as link from "../../../ffi/route/link.ts";
import { CniError, Code } from "../../../spec/error.ts";
import type { Interface, Result } from "../../../spec/result.ts";
import { configureInterface } from "./configure_interface.ts";
import { expectConfigured, requireContainerInterface } from "./check_interface.ts";
import { removeContainerLink } from "./container_link.ts";
import {
  type AddCall,
  type BatchIpamDelegate,
  type CheckCall,
  type DelBatch,
  type DelBatchCall,
  type DelCall,
  releaseSteps,
  requirePrevResult,
  runAllSteps,
} from "../protocol/plugin.ts";

export function describeInterface({ sandbox }: AddCall<unknown>, { name = "", mac }: link.Link): Interface {
  return { name, ...mac ? { mac } : {}, sandbox };
}

export function assignAddresses({ ipam, pluginConfig: { dns } }: AddCall<unknown>, interfaceEntry: Interface): Result {
  const hasDns = dns !== undefined && Object.keys(dns).length > 0;
  if (!ipam) return { interfaces: [interfaceEntry], ...hasDns ? { dns } : {} };
  const assigned = ipam.add();
  if (!assigned.ips?.length) {
    throw new CniError(Code.Internal, `Cannot attach the container: IPAM plugin "${ipam.type}" returned no address`);
  }
  const ips = assigned.ips.map((ip) => ({ ...ip, interface: 0 }));
  return { ...assigned, interfaces: [interfaceEntry], ips, ...hasDns ? { dns } : {} };
}

/**
 * @param noDad as in {@linkcode configureInterface}
 * @throws {CniError} if IPAM gave no address, or another host has one
 */
export function attachInterface(call: AddCall<unknown>, device: link.Link, noDad: boolean): Result {
  const result = assignAddresses(call, describeInterface(call, device));
  if (call.ipam) configureInterface(call.netns, device, result, { noDad, log: call.log });
  else link.setUp(call.netns.route, device.index);
  return result;
}

export function checkAttachedInterface(call: CheckCall<unknown>, type: string): link.Link {
  call.ipam?.check();
  const result = requirePrevResult(call, type);
  requireContainerInterface(result, call.ifname, call.sandbox);
  return expectConfigured(call.netns, call.ifname, result);
}

export function detachInterface(call: DelCall<unknown>, kind: string): void {
  runAllSteps(...releaseSteps(call.ipam, () => removeContainerLink(call.netns, call, kind)));
}

/** @returns the calls whose addresses IPAM has not released @throws {Error} naming every failure */
export function detachInterfaces<C>(
  calls: DelBatch<C>,
  ipam: BatchIpamDelegate,
  kind: string,
): readonly DelBatchCall<C>[] {
  let remaining: readonly DelBatchCall<C>[] = [];
  runAllSteps(
    ...calls.map((call) => () => call.withNetns((netns) => removeContainerLink(netns, call, kind))),
    () => void (remaining = ipam.del(calls)),
  );
  return remaining;
}
