import { listNamedNetns, namedNetnsPath } from "../ffi/netns/named.ts";
import { type Netns, NetnsError } from "../ffi/netns/netns.ts";
import * as link from "../ffi/route/link.ts";
import { stopReportingSignals } from "../ffi/sys/signals.ts";
import { findStat } from "../ffi/sys/stat.ts";
import type { HostContext } from "../plugins/lib/protocol/context.ts";
import { delegateWasNotRun } from "../plugins/lib/protocol/delegate.ts";
import { detachCommand, type Owner } from "../plugins/lib/model/owner.ts";
import { containerIdProblem, isTrue, networkNameProblem, newIfnameProblem } from "../spec/env.ts";
import { CniError, Code } from "../spec/error.ts";
import type { NetworkConfigList } from "../spec/network_config_list.ts";
import { formatResult, type Result } from "../spec/result.ts";
import { findKey } from "../spec/schema.ts";
import { suggestion } from "../spec/suggest.ts";
import * as cache from "./cache.ts";
import { callAdd, callPlugin, describeFailure, MissingPluginError } from "./call_plugin.ts";
import type { RuntimeContext } from "./context.ts";
import { delNetworkList } from "./del.ts";
import { type HeldNetnsContext, holdNetns } from "./held_netns.ts";
import { lockContainer } from "./lock.ts";
import { attachmentKey, describeAttachment, type RuntimeConf } from "./resolve_attachment.ts";
import { isNetnsOf, netnsGoneReason } from "./netns_gone.ts";

/** Says what container to attach. */
export interface AddRuntimeConf extends RuntimeConf {
  /** The path of the container's namespace. */
  readonly netns: string;
}

/** Does ADD (SPEC §3, §Lifecycle & Ordering), see {@linkcode Runtime.add}. */
export function addNetworkList(runtime: RuntimeContext, list: NetworkConfigList, parameters: AddRuntimeConf): Result {
  validateRuntimeConf(list, parameters);
  if (list.plugins.length === 0) {
    throw new CniError(Code.InvalidConfig, `Cannot attach to network "${list.name}": it has no plugins`);
  }
  const key = attachmentKey(list.name, parameters);
  // Refuses names that no cache file can have, before anything is made.
  cache.cachePath(runtime.cacheDirectory, key);
  removeLeftovers(runtime, list, parameters);
  using _ = lockContainer(runtime.cacheDirectory, parameters.containerId, { inherited: true });
  warnOfConfiguredPrevResult(runtime, list);
  using hostContext = holdNetns({ ...runtime.hostContext, goneReason: (owner) => goneReason(runtime, owner) });
  const netns = openUnlessAttached({ ...runtime, hostContext }, parameters, key);
  const { args = [], capabilityArgs = {} } = parameters;
  const entry: cache.CacheEntry = { ...key, netns: parameters.netns, config: list.text, args, capabilityArgs };
  const netnsCookie = netns?.cookie;
  const entryWithCookie = netnsCookie === undefined ? entry : { ...entry, netnsCookie };
  // Written first: of two calls one is refused, and DEL finds what a killed process made.
  if (!cache.createEntry(runtime.cacheDirectory, entryWithCookie)) throw alreadyAttachedError(runtime, entry);
  return addPlugins({ ...runtime, hostContext }, list, entryWithCookie);
}

function goneReason({ cacheDirectory, hostContext }: RuntimeContext, owner: Owner): string | undefined {
  try {
    const entry = cache.findEntry(cacheDirectory, owner);
    return entry && netnsGoneReason(entry, hostContext);
  } catch {
    return undefined;
  }
}

function addPlugins(
  runtime: RuntimeContext & { readonly hostContext: HeldNetnsContext },
  list: NetworkConfigList,
  entry: cache.CacheEntry,
): Result {
  let result: Result | undefined;
  try {
    for (const plugin of list.plugins) {
      result = callAdd(runtime, list, plugin, { parameters: entry, prevResult: result });
    }
    // Programs open the path anew. If it leads elsewhere now, they may have worked in either namespace.
    const isAmbiguous = runtime.hostContext.hasRunProgram && isNetnsOf(entry, entry.netns ?? "") === false;
    const { netnsCookie: _, ...withoutCookie } = entry;
    const finalEntry = isAmbiguous ? withoutCookie : entry;
    cache.replaceEntry(runtime.cacheDirectory, { ...finalEntry, result: formatResult(result!, list.cniVersion) });
    return result!;
  } catch (error) {
    throw runtime.rollback === false ? error : rollbackAdd(runtime, list, entry, result, error);
  }
}

function warnOfConfiguredPrevResult({ log }: RuntimeContext, list: NetworkConfigList): void {
  for (const { type, raw } of list.plugins) {
    if (findKey(raw, "prevResult") === undefined) continue;
    log(
      `Ignoring prevResult in the configuration of plugin "${type}": the runtime sets it`,
    );
  }
}

function validateRuntimeConf(
  list: NetworkConfigList,
  { containerId, ifname, netns, args = [] }: AddRuntimeConf,
): void {
  const problems = [
    ["container id", containerIdProblem(containerId)],
    ["network name", networkNameProblem(list.name)],
    ["interface name", ifname.includes("\0") ? "has a NUL" : newIfnameProblem(ifname)],
    ["network namespace", netnsPathProblem(netns)],
    ...args.map(([key, value]) => [
      `argument ${JSON.stringify(key)}`,
      key === "" || value === "" || /[=;\0]/.test(key + value)
        ? 'must be KEY=VALUE, neither with a "=", a ";" or a NUL'
        : undefined,
    ]),
  ];
  const messages = problems.filter(([, problem]) => problem !== undefined).map((pair) => pair.join(" "));
  if (messages.length === 0) return;
  throw new CniError(Code.InvalidEnvironment, `Cannot attach to network "${list.name}": ${messages.join("; ")}`);
}

function netnsPathProblem(path: string): string | undefined {
  if (path === "") return "is missing";
  return path.includes("\0") ? "has a NUL" : undefined;
}

function alreadyAttachedError({ cacheDirectory }: RuntimeContext, entry: cache.CacheEntry): CniError {
  const path = cache.cachePath(cacheDirectory, entry);
  if (findStat(path, false)?.isDirectory) {
    return new CniError(
      Code.InvalidEnvironment,
      `Cannot remember ${describeAttachment(entry)}: "${path}" is a directory`,
      {
        details: "remove the directory",
      },
    );
  }
  const occupant = cache.findOccupant(cacheDirectory, entry);
  if (occupant && !cache.isSameAttachment(occupant, entry)) {
    return new CniError(
      Code.InvalidEnvironment,
      `Cannot remember ${describeAttachment(entry)}: ${describeAttachment(occupant)} has the same file name`,
      {
        details: `"${path}": choose another container id`,
      },
    );
  }
  const [reason, advice] = attachedReason(occupant, path, detachHint(cacheDirectory, entry));
  return new CniError(Code.InvalidEnvironment, `Cannot attach ${describeAttachment(entry)}: ${reason}`, {
    details: advice,
  });
}

function attachedReason(
  occupant: cache.CacheEntry | undefined,
  path: string,
  detach: string,
): readonly [reason: string, advice: string] {
  if (!occupant) return ["it may be attached already", `"${path}" cannot be understood; remove it first: ${detach}`];
  if (occupant.result === undefined) {
    return ["an ADD of it has not ended", `"${path}" says so; if that ADD has ended, remove what it left: ${detach}`];
  }
  return ["it is attached already", `"${path}" says so; remove it first: ${detach}`];
}

function detachHint(cacheDirectory: string, entry: cache.AttachmentKey): string {
  return detachCommand(
    entry,
    ...cacheDirectory === cache.DEFAULT_CACHE_DIRECTORY ? [] : ["--cache-dir", cacheDirectory],
  );
}

/** Calls DEL of all plugins (SPEC §ADD), also of those that ADD did not reach. The error names what stays. */
function rollbackAdd(
  runtime: RuntimeContext,
  list: NetworkConfigList,
  entry: cache.CacheEntry,
  result: Result | undefined,
  error: unknown,
): CniError {
  stopReportingSignals();
  const failures: unknown[] = [];
  for (const plugin of list.plugins.toReversed()) {
    try {
      callPlugin(runtime, list, plugin, { command: "DEL", parameters: entry, prevResult: result, undoesAdd: true });
    } catch (failure) {
      // A missing plugin left nothing; nor did a missing delegate for which the ADD failed.
      const isNothingToUndo = failure instanceof MissingPluginError ||
        (delegateWasNotRun(error) && delegateWasNotRun(failure));
      if (!isNothingToUndo) failures.push(failure);
    }
  }
  // DEL and GC must find what stays.
  try {
    if (failures.length === 0) cache.removeEntry(runtime.cacheDirectory, entry, runtime.log);
  } catch (failure) {
    failures.push(failure);
  }
  const { code, message, details } = CniError.from(error);
  const notes = failures.map((failure) => `clean-up failed: ${describeFailure(failure)}`);
  if (failures.length > 0) notes.push(`remove what stays: ${detachHint(runtime.cacheDirectory, entry)}`);
  return new CniError(code, message, { details: [...(details ? [details] : []), ...notes].join("; "), cause: error });
}

/** Returns `undefined` if the attachment is cached: then ADD has a better error. */
function openUnlessAttached(
  runtime: RuntimeContext,
  parameters: AddRuntimeConf,
  key: cache.AttachmentKey,
): Netns | undefined {
  try {
    const netns = openUsableNetns(runtime, parameters.netns);
    requireNoInterface(runtime, parameters, netns);
    return netns;
  } catch (error) {
    if (cache.findOccupant(runtime.cacheDirectory, key)) return undefined;
    throw error;
  }
}

/** @throws {CniError} code 8 if the path is no namespace, or the host's */
function openUsableNetns({ env, hostContext }: RuntimeContext, path: string): Netns {
  const netns = openNetnsOrCniError(path, hostContext);
  if (netns.identity !== hostContext.host.identity || isTrue(env.CNI_NETNS_OVERRIDE ?? "")) return netns;
  netns[Symbol.dispose]();
  // Plugins refuse it too, but later.
  throw new CniError(Code.InvalidNetns, `Cannot attach "${path}": it is the namespace that cni itself is in`, {
    details: "set CNI_NETNS_OVERRIDE=1 if this is meant",
  });
}

function openNetnsOrCniError(path: string, { openNetns }: HostContext): Netns {
  try {
    return openNetns(path);
  } catch (error) {
    if (!(error instanceof NetnsError)) throw error;
    const { message, absent } = error;
    const name = absent ? newNetnsName(path) : undefined;
    if (name === undefined) throw new CniError(Code.InvalidNetns, message, { cause: error });
    throw new CniError(Code.InvalidNetns, message + suggestion(name, listNamedNetns()), {
      details: `make one of that name: cni netns add ${name}`,
      cause: error,
    });
  }
}

/** Only named namespaces can be made by name. */
function newNetnsName(path: string): string | undefined {
  const name = path.slice(path.lastIndexOf("/") + 1);
  return name !== "" && path === namedNetnsPath(name) ? name : undefined;
}

/** Rollback removes interfaces by name, and would remove another's. */
function requireNoInterface({ rollback }: RuntimeContext, { netns: path, ifname }: AddRuntimeConf, netns: Netns): void {
  // Every namespace has "lo", and the loopback plugin works on it.
  if (rollback === false || ifname === "lo" || !link.find(netns.route, ifname)) return;
  throw new CniError(Code.InvalidEnvironment, `Cannot attach "${path}": it has an interface "${ifname}" already`, {
    details: "choose another name with --ifname",
  });
}

function removeLeftovers(runtime: RuntimeContext, list: NetworkConfigList, parameters: AddRuntimeConf): void {
  const { entry, damage } = readCacheEntry(runtime.cacheDirectory, attachmentKey(list.name, parameters));
  if (entry) removeStale(runtime, list, parameters);
  if (damage !== undefined) removeDamaged(runtime, list, parameters);
}

function readCacheEntry(directory: string, key: cache.AttachmentKey): { entry?: cache.CacheEntry; damage?: string } {
  try {
    const entry = cache.findEntry(directory, key);
    return entry ? { entry } : {};
  } catch (error) {
    if (error instanceof CniError && error.code === Code.DecodeFailure) return { damage: error.message };
    throw error;
  }
}

/** A damaged file, as after a power cut, does not tell whether the container is attached; its interface does. */
function removeDamaged(runtime: RuntimeContext, list: NetworkConfigList, parameters: AddRuntimeConf): void {
  const key = attachmentKey(list.name, parameters);
  const isDirectory = findStat(cache.cachePath(runtime.cacheDirectory, key), false)?.isDirectory;
  if (runtime.rollback === false || isDirectory) return;
  removeBeforeAdd(runtime, list, parameters, "what may be left", () => {
    const { damage } = readCacheEntry(runtime.cacheDirectory, key);
    if (damage !== undefined) {
      using netns = openUsableNetns(runtime, parameters.netns);
      requireNoInterface(runtime, parameters, netns);
    }
    return damage;
  });
}

function removeStale(runtime: RuntimeContext, list: NetworkConfigList, parameters: AddRuntimeConf): void {
  const key = attachmentKey(list.name, parameters);
  // An ADD that must fail removes nothing.
  openUsableNetns(runtime, parameters.netns)[Symbol.dispose]();
  // The namespace is left out: another one is at that path.
  removeBeforeAdd(
    runtime,
    list,
    { containerId: key.containerId, ifname: key.ifname, netns: "" },
    "what is left",
    () => {
      const { entry } = readCacheEntry(runtime.cacheDirectory, key);
      return entry && netnsGoneReason(entry, runtime.hostContext);
    },
  );
}

/** @param findReason gives `undefined` to keep it */
function removeBeforeAdd(
  runtime: RuntimeContext,
  list: NetworkConfigList,
  parameters: RuntimeConf,
  subject: string,
  findReason: () => string | undefined,
): void {
  if (findReason() === undefined) return;
  delNetworkList(runtime, list, parameters, () => {
    // Another command may have attached it anew before the lock was held.
    const reason = findReason();
    if (reason !== undefined) {
      runtime.log(
        `Removing ${subject} of ${describeAttachment(attachmentKey(list.name, parameters))} first: ${reason}`,
      );
    }
    return reason !== undefined;
  });
}
