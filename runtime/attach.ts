/**
 * Attaching with the machine's state in view: what an ADD must not run into, and what an earlier one left.
 *
 * @module
 */
import { namedNetnsPath } from "../ffi/named_netns.ts";
import { type Netns, NetnsError } from "../ffi/netns.ts";
import * as link from "../ffi/route/link.ts";
import { isTrue } from "../spec/env.ts";
import { CniError, Code } from "../spec/error.ts";
import type { NetworkConfigList } from "../spec/network_config_list.ts";
import type { Result } from "../spec/result.ts";
import * as cache from "./cache.ts";
import { type NamespaceContext, staleReason } from "./stale.ts";
import { attachmentKey, describeAttachment, type RuntimeConf } from "./resolve_attachment.ts";
import {
  addNetworkList,
  type AddRuntimeConf,
  delNetworkList,
  type RuntimeContext,
  validateRuntimeConf,
} from "./operations.ts";

/**
 * Attaches a container, like {@linkcode addNetworkList}; an attachment of the same name that cannot live any more is removed first.
 *
 * @throws {CniError} code 8 if there is no such namespace, code 4 if it has an interface of that name, and as {@linkcode addNetworkList}
 */
export function attachContainer(
  runtime: RuntimeContext,
  list: NetworkConfigList,
  parameters: AddRuntimeConf,
  context: NamespaceContext,
): Result {
  validateRuntimeConf(list, parameters);
  const key = attachmentKey(list.name, parameters);
  const { entry, breakage: damage } = readCacheEntry(runtime.cacheDirectory, key);
  if (entry) removeStale(runtime, list, parameters, context);
  if (damage !== undefined) removeDamaged(runtime, list, parameters, context);
  return addNetworkList(runtime, list, parameters, () => {
    try {
      return cookieOfUsableNetns(parameters, runtime, context);
    } catch (error) {
      // Who is remembered there is refused by the ADD, which says more.
      if (cache.findOccupant(runtime.cacheDirectory, key)) return undefined;
      throw error;
    }
  });
}

/** What is remembered, or why it cannot be understood; nothing if there is nothing, or another's. */
function readCacheEntry(directory: string, key: cache.AttachmentKey): { entry?: cache.CacheEntry; breakage?: string } {
  try {
    const entry = cache.findEntry(directory, key);
    return entry ? { entry } : {};
  } catch (error) {
    if (error instanceof CniError && error.code === Code.DecodeFailure) return { breakage: error.message };
    throw error;
  }
}

function openContainerNetns(path: string, { env }: RuntimeContext, context: NamespaceContext): Netns {
  using resources = new DisposableStack();
  const netns = resources.use(openNetnsOrCniError(path, context));
  if (netns.identity === context.host.identity && !isTrue(env.CNI_NETNS_OVERRIDE ?? "")) {
    // Plugins refuse it as well, but each would be called, and what it did undone.
    throw new CniError(Code.InvalidNetns, `Cannot attach "${path}": it is the namespace that cni itself is in`, {
      details: "set CNI_NETNS_OVERRIDE=1 if this is meant",
    });
  }
  resources.move();
  return netns;
}

function openNetnsOrCniError(path: string, { openNetns }: NamespaceContext): Netns {
  try {
    return openNetns(path);
  } catch (error) {
    if (!(error instanceof NetnsError)) throw error;
    const { message, absent } = error;
    throw new CniError(Code.InvalidNetns, message, { ...absent && { details: createNetnsHint(path) }, cause: error });
  }
}

/** Only what lies among the named ones can be made by a name; else nothing. */
function createNetnsHint(path: string): string {
  const name = path.slice(path.lastIndexOf("/") + 1);
  return name !== "" && path === namedNetnsPath(name) ? `make one of that name: cni netns add ${name}` : "";
}

/**
 * The cookie of a namespace that has room for the interface. A failed ADD is undone by name: an interface that somebody else put there
 * would be taken away with it.
 *
 * @throws {CniError} if there is an interface of that name, or no namespace that could be used
 */
function cookieOfUsableNetns(
  { netns: path, ifname }: AddRuntimeConf,
  runtime: RuntimeContext,
  context: NamespaceContext,
): string | undefined {
  // Not held open beyond this: nobody could take it off its path meanwhile.
  using netns = openContainerNetns(path, runtime, context);
  // Every namespace has "lo" from its start, and the loopback plugin works on it.
  if (runtime.rollback === false || ifname === "lo" || !link.find(netns.route, ifname)) return netns.cookie;
  throw new CniError(Code.InvalidEnvironment, `Cannot attach "${path}": it has an interface "${ifname}" already`, {
    details: "choose another name with --ifname",
  });
}

/**
 * A file that cannot be understood, as a power cut leaves it, does not say whether the container is attached. If there is no such interface,
 * it is not, and things may be left of it.
 */
function removeDamaged(
  runtime: RuntimeContext,
  list: NetworkConfigList,
  parameters: AddRuntimeConf,
  context: NamespaceContext,
): void {
  if (runtime.rollback === false) return;
  const key = attachmentKey(list.name, parameters);
  removeBeforeAdd(runtime, list, parameters, "what may be left", () => {
    const { breakage: damage } = readCacheEntry(runtime.cacheDirectory, key);
    if (damage !== undefined) cookieOfUsableNetns(parameters, runtime, context);
    return damage;
  });
}

function removeStale(
  runtime: RuntimeContext,
  list: NetworkConfigList,
  parameters: AddRuntimeConf,
  context: NamespaceContext,
): void {
  const key = attachmentKey(list.name, parameters);
  // Nothing is removed in favour of what cannot be attached.
  openContainerNetns(parameters.netns, runtime, context)[Symbol.dispose]();
  // Without the namespace: what is at that path now, or comes to be, is somebody else's.
  removeBeforeAdd(
    runtime,
    list,
    { containerId: key.containerId, ifname: key.ifname, netns: "" },
    "what is left",
    () => {
      const { entry } = readCacheEntry(runtime.cacheDirectory, key);
      return entry && staleReason(entry, context);
    },
  );
}

/** @param findReason why it is to be removed; `undefined` if it is to stay */
function removeBeforeAdd(
  runtime: RuntimeContext,
  list: NetworkConfigList,
  parameters: RuntimeConf,
  subject: string,
  findReason: () => string | undefined,
): void {
  if (findReason() === undefined) return;
  delNetworkList(runtime, list, parameters, () => {
    // Who was at this container until now may have removed it, and attached it anew.
    const reason = findReason();
    if (reason !== undefined) {
      runtime.log(
        `Removing ${subject} of ${describeAttachment(attachmentKey(list.name, parameters))} first: ${reason}`,
      );
    }
    return reason !== undefined;
  });
}
