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
import type { NetworkList } from "../spec/network_config_list.ts";
import type { Result } from "../spec/result.ts";
import * as cache from "./cache.ts";
import { type Kernel, whyEnded } from "./stale.ts";
import { describe, keyOf, type RecallParameters } from "./resolve_attachment.ts";
import { add, type AddParameters, checkParameters, del, type RuntimeOptions } from "./operations.ts";

/**
 * Attaches a container, like {@linkcode add}; an attachment of the same name that cannot live any more is removed first.
 *
 * @throws {CniError} code 8 if there is no such namespace, code 4 if it has an interface of that name, and as {@linkcode add}
 */
export function attach(runtime: RuntimeOptions, list: NetworkList, parameters: AddParameters, kernel: Kernel): Result {
  checkParameters(list, parameters);
  const key = keyOf(list.name, parameters);
  const { entry, breakage } = recollect(runtime.cacheDirectory, key);
  if (entry) removeEnded(runtime, list, parameters, kernel);
  if (breakage !== undefined) removeBroken(runtime, list, parameters, kernel);
  return add(runtime, list, parameters, () => {
    try {
      return cookieOfFree(parameters, runtime, kernel);
    } catch (error) {
      // Who is remembered there is refused by the ADD, which says more.
      if (cache.occupantOf(runtime.cacheDirectory, key)) return undefined;
      throw error;
    }
  });
}

/** What is remembered, or why it cannot be understood; nothing if there is nothing, or another's. */
function recollect(directory: string, key: cache.AttachmentKey): { entry?: cache.CacheEntry; breakage?: string } {
  try {
    const entry = cache.findEntry(directory, key);
    return entry ? { entry } : {};
  } catch (error) {
    if (error instanceof CniError && error.code === Code.DecodeFailure) return { breakage: error.message };
    throw error;
  }
}

function openUsable(path: string, { env }: RuntimeOptions, kernel: Kernel): Netns {
  using opened = new DisposableStack();
  const netns = opened.use(open(path, kernel));
  if (netns.identity === kernel.host.identity && !isTrue(env.CNI_NETNS_OVERRIDE ?? "")) {
    // Plugins refuse it as well, but each would be called, and what it did undone.
    throw new CniError(Code.InvalidNetns, `Cannot attach "${path}": it is the namespace that cni itself is in`, {
      details: "set CNI_NETNS_OVERRIDE=1 if this is meant",
    });
  }
  opened.move();
  return netns;
}

function open(path: string, { openNetns }: Kernel): Netns {
  try {
    return openNetns(path);
  } catch (error) {
    if (!(error instanceof NetnsError)) throw error;
    const { message, absent } = error;
    throw new CniError(Code.InvalidNetns, message, { ...absent && { details: howToMake(path) }, cause: error });
  }
}

/** Only what lies among the named ones can be made by a name; else nothing. */
function howToMake(path: string): string {
  const name = path.slice(path.lastIndexOf("/") + 1);
  return name !== "" && path === namedNetnsPath(name) ? `make one of that name: cni netns add ${name}` : "";
}

/**
 * The cookie of a namespace that has room for the interface. A failed ADD is undone by name: an interface that somebody else put there
 * would be taken away with it.
 *
 * @throws {CniError} if there is an interface of that name, or no namespace that could be used
 */
function cookieOfFree(
  { netns: path, ifname }: AddParameters,
  runtime: RuntimeOptions,
  kernel: Kernel,
): string | undefined {
  // Not held open beyond this: nobody could take it off its path meanwhile.
  using netns = openUsable(path, runtime, kernel);
  // Every namespace has "lo" from its start, and the loopback plugin works on it.
  if (runtime.rollBack === false || ifname === "lo" || !link.find(netns.route, ifname)) return netns.cookie;
  throw new CniError(Code.InvalidEnvironment, `Cannot attach "${path}": it has an interface "${ifname}" already`, {
    details: "choose another name with --ifname",
  });
}

/**
 * A file that cannot be understood, as a power cut leaves it, does not say whether the container is attached. If there is no such interface,
 * it is not, and things may be left of it.
 */
function removeBroken(runtime: RuntimeOptions, list: NetworkList, parameters: AddParameters, kernel: Kernel): void {
  if (runtime.rollBack === false) return;
  const key = keyOf(list.name, parameters);
  removeFirst(runtime, list, parameters, "what may be left", () => {
    const { breakage } = recollect(runtime.cacheDirectory, key);
    if (breakage !== undefined) cookieOfFree(parameters, runtime, kernel);
    return breakage;
  });
}

function removeEnded(runtime: RuntimeOptions, list: NetworkList, parameters: AddParameters, kernel: Kernel): void {
  const key = keyOf(list.name, parameters);
  // Nothing is removed in favour of what cannot be attached.
  openUsable(parameters.netns, runtime, kernel)[Symbol.dispose]();
  // Without the namespace: what is at that path now, or comes to be, is somebody else's.
  removeFirst(runtime, list, { containerId: key.containerId, ifname: key.ifname, netns: "" }, "what is left", () => {
    const { entry } = recollect(runtime.cacheDirectory, key);
    return entry && whyEnded(entry, kernel);
  });
}

/** @param findReason why it is to be removed; `undefined` if it is to stay */
function removeFirst(
  runtime: RuntimeOptions,
  list: NetworkList,
  parameters: RecallParameters,
  what: string,
  findReason: () => string | undefined,
): void {
  if (findReason() === undefined) return;
  del(runtime, list, parameters, () => {
    // Who was at this container until now may have removed it, and attached it anew.
    const reason = findReason();
    if (reason !== undefined) {
      runtime.log(`Removing ${what} of ${describe(keyOf(list.name, parameters))} first: ${reason}`);
    }
    return reason !== undefined;
  });
}
