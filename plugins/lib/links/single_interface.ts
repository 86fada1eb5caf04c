/**
 * What plugins have in common that give the container one interface: it gets what IPAM decided, and stands alone in the result.
 *
 * @module
 */
import type { Link } from "../../../ffi/route/link.ts";
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
  cleanUp,
  type DelBatch,
  type DelBatchCall,
  type DelCall,
  requirePrevResult,
} from "../protocol/plugin.ts";

/** The interface as it stands in the result: `{ name, mac, sandbox }`. */
export function describeInterface({ sandbox }: AddCall<unknown>, { name = "", mac }: Link): Interface {
  return { name, ...mac ? { mac } : {}, sandbox };
}

/**
 * The result of a plugin that gives the container the interface `described`, with what IPAM decided, if there is an IPAM plugin. Nothing
 * is configured.
 *
 * @throws {CniError} what IPAM failed with, or that it gave no address
 */
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
 * Gives `device`, which is in the container by its final name, what IPAM decided, and sets it up; without an IPAM plugin it is set up and
 * nothing more.
 *
 * @param noDad as in {@linkcode configureInterface}
 * @throws {CniError} what IPAM failed with, that it gave no address, or that another host has one of them
 * @throws {NetlinkError} what the kernel refused
 */
export function attachInterface(call: AddCall<unknown>, device: Link, noDad: boolean): Result {
  const result = assignAddresses(call, describeInterface(call, device));
  if (call.ipam) configureInterface(call.netns, device, result, { noDad, log: call.log });
  else link.setUp(call.netns.route, device.index);
  return result;
}

/**
 * Compares the container's interface with what ADD left: IPAM first, then the interface, its addresses and routes.
 *
 * @param type the plugin's name
 * @throws {CniError} on the first difference
 */
export function checkAttachedInterface(call: CheckCall<unknown>, type: string): Link {
  call.ipam?.check();
  const result = requirePrevResult(call, type);
  requireContainerInterface(result, call.ifname, call.sandbox);
  return expectConfigured(call.netns, call.ifname, result);
}

/** Removes the container's interface of this kind, and gives back its addresses. @throws {Error} naming what could not be done */
export function detachInterface(call: DelCall<unknown>, kind: string): void {
  cleanUp(
    () => removeContainerLink(call.netns, call, kind),
    () => call.ipam?.del(),
  );
}

/**
 * Does the same for many: the interfaces of those that died went with their namespaces, and the addresses of all are given back together.
 *
 * @returns those whose addresses are still to be given back @throws {Error} naming what could not be done
 */
export function detachInterfaces<C>(
  calls: DelBatch<C>,
  ipam: BatchIpamDelegate,
  kind: string,
): readonly DelBatchCall<C>[] {
  let remaining: readonly DelBatchCall<C>[] = [];
  cleanUp(
    ...calls.map((call) => () => call.withNetns((netns) => removeContainerLink(netns, call, kind))),
    () => void (remaining = ipam.del(calls)),
  );
  return remaining;
}
