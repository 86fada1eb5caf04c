/**
 * The runtime: carries out the commands of the specification for all plugins of a network, and remembers what was attached.
 *
 * It knows plugins by name only and calls them through an {@linkcode Invoker}.
 *
 * @see SPEC.md §Lifecycle & Ordering, §3 Execution of Network Configurations
 * @module
 */
import { stopReportingSignals } from "../ffi/sys/signals.ts";
import { delegateWasNotRun, type Invoker } from "../plugins/lib/protocol/delegate.ts";
import { throwIfSignalled } from "../plugins/lib/protocol/signal.ts";
import { containerIdProblem, linkNameProblem, networkNameProblem } from "../spec/env.ts";
import { CniError, Code } from "../spec/error.ts";
import type { NetworkConfigList } from "../spec/network_config_list.ts";
import { formatResult, parseResult, type Result } from "../spec/result.ts";
import { findKey } from "../spec/schema.ts";
import { atLeast, type CniCommand, introducedIn } from "../spec/version.ts";
import * as cache from "./cache.ts";
import { callPlugin, callPluginForResult, MissingPluginError } from "./call_plugin.ts";
import { isNetnsOf } from "./stale.ts";
import { lockContainer } from "./lock.ts";
import {
  attachmentKey,
  describeAttachment,
  findCachedResult,
  resolveAttachment,
  type RuntimeConf,
} from "./resolve_attachment.ts";

/** What a runtime works with. */
export interface RuntimeContext {
  /** Finds and calls the plugins that networks name. */
  readonly invoker: Invoker;
  /** Calls the plugins of this program alone, which those of the built-in network are, whoever else has some of their names. */
  readonly builtInPlugins?: Invoker;
  /** Where plugins of others are; passed to plugins that delegate. */
  readonly pluginDirectories: readonly string[];
  /** Where attachments are remembered: `/var/lib/cni`. */
  readonly cacheDirectory: string;
  /** What programs that are started inherit. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Whether a failed ADD is undone at once; without it the caller owes a DEL. On unless told. */
  readonly rollback?: boolean;
  /** Told of what was gone on in spite of. */
  log(message: string): void;
}

/** What to attach. */
export interface AddRuntimeConf extends RuntimeConf {
  /** Path of the container's network namespace. */
  readonly netns: string;
}

/**
 * Attaches a container and remembers it.
 *
 * @param findCookie of its namespace, to know it again; asked when nothing else is done for the container any more, since another may be at
 * the path after the wait
 * @returns the result of the last plugin, in the current form
 * @throws {CniError} if something is wrong with the parameters, if the container is attached already, or what a plugin failed with
 */
export function addNetworkList(
  runtime: RuntimeContext,
  list: NetworkConfigList,
  parameters: AddRuntimeConf,
  findCookie?: () => string | undefined,
): Result {
  validateRuntimeConf(list, parameters);
  // What cannot be remembered is refused before anything is made.
  cache.cachePath(runtime.cacheDirectory, attachmentKey(list.name, parameters));
  using _ = lockContainer(runtime.cacheDirectory, parameters.containerId, { inherited: true });
  warnOfConfiguredPrevResult(runtime, list);
  const netnsCookie = findCookie?.();
  const { netns, args = [], capabilityArgs = {} } = parameters;
  const entry: cache.CacheEntry = {
    ...attachmentKey(list.name, parameters),
    netns,
    config: list.text,
    args,
    capabilityArgs,
  };
  const entryWithCookie = netnsCookie === undefined ? entry : { ...entry, netnsCookie };
  // Written first, so that of two calls one is refused, and what a killed process has set up can be found and removed.
  if (!cache.createEntry(runtime.cacheDirectory, entryWithCookie)) throw alreadyAttachedError(runtime, entry);
  let result: Result | undefined;
  try {
    for (const plugin of list.plugins) {
      result = callPluginForResult(runtime, list, plugin, { verb: "ADD", parameters: entry, prevResult: result });
      throwIfSignalled();
    }
    if (!result) throw new CniError(Code.InvalidConfig, `Cannot attach to network "${list.name}": it has no plugins`);
    // Where another namespace is there by now, nobody knows in which of the two the plugins were.
    const finalEntry = isNetnsOf(entryWithCookie, netns) === false ? entry : entryWithCookie;
    cache.replaceEntry(runtime.cacheDirectory, { ...finalEntry, result: formatResult(result, list.cniVersion) });
    return result;
  } catch (error) {
    throw runtime.rollback === false ? error : rollbackAdd(runtime, list, entry, result, error);
  }
}

function warnOfConfiguredPrevResult({ log }: RuntimeContext, list: NetworkConfigList): void {
  for (const { type, raw } of list.plugins) {
    if (findKey(raw, "prevResult") === undefined) continue;
    log(
      `Leaving out the prevResult that stands in the configuration of plugin "${type}": the runtime gives one, and none to the first`,
    );
  }
}

/**
 * Detaches a container; succeeds when it is detached already. What was used to attach it counts, not what has become of the
 * configuration since.
 *
 * @param network its configuration, or its name if that is gone
 * @param isStillWanted asked when nothing else is done for the container any more; nothing is detached if not
 * @throws {CniError} what a plugin failed with, or if no configuration is known
 */
export function delNetworkList(
  runtime: RuntimeContext,
  network: NetworkConfigList | string,
  parameters: RuntimeConf,
  isStillWanted: () => boolean = () => true,
): void {
  using _ = lockContainer(runtime.cacheDirectory, parameters.containerId);
  if (isStillWanted()) delPlugins(runtime, network, parameters);
}

function delPlugins(runtime: RuntimeContext, network: NetworkConfigList | string, parameters: RuntimeConf): void {
  const attachment = resolveAttachment(runtime, network, parameters, "remove");
  const { list, entry } = attachment;
  const prevResult = findCachedResult(runtime, attachment);
  for (const plugin of list.plugins.toReversed()) {
    callPlugin(runtime, list, plugin, { verb: "DEL", parameters: entry, prevResult });
  }
  cache.removeEntry(runtime.cacheDirectory, entry);
}

/**
 * Asks the plugins whether a container is still attached as it was.
 *
 * @throws {CniError} what a plugin found, or code 1 if the configuration's version has no CHECK, or if nothing is known of the attachment
 */
export function checkNetworkList(
  runtime: RuntimeContext,
  network: NetworkConfigList | string,
  parameters: RuntimeConf,
): void {
  using _ = lockContainer(runtime.cacheDirectory, parameters.containerId);
  const { list, entry } = resolveAttachment(runtime, network, parameters, "check");
  requireVersion(list, "CHECK");
  if (list.disableCheck) return;
  if (entry.result === undefined) {
    throw new CniError(
      Code.UnknownContainer,
      `Cannot check ${describeAttachment(entry)}: no result of an ADD is known`,
      {
        details: `looked in "${cache.cachePath(runtime.cacheDirectory, entry)}"`,
      },
    );
  }
  const prevResult = parseResult(entry.result, list.cniVersion, "result");
  for (const plugin of list.plugins) {
    callPlugin(runtime, list, plugin, { verb: "CHECK", parameters: entry, prevResult });
  }
}

/** Asks the plugins whether they could serve an ADD. @throws {CniError} with code 50 or 51 if one could not */
export function getNetworkListStatus(runtime: RuntimeContext, list: NetworkConfigList): void {
  if (!atLeast(list.cniVersion, introducedIn.STATUS)) {
    runtime.log(`Network "${list.name}" has cniVersion ${list.cniVersion}, which has no STATUS: nothing was asked`);
    return;
  }
  for (const plugin of list.plugins) callPlugin(runtime, list, plugin, { verb: "STATUS" });
}

/** Makes sure that an attachment can be named in calls and files. @throws {CniError} code 4, naming every problem */
export function validateRuntimeConf(
  list: NetworkConfigList,
  { containerId, ifname, netns, args = [] }: AddRuntimeConf,
): void {
  const problems = [
    ["container id", containerIdProblem(containerId)],
    ["network name", networkNameProblem(list.name)],
    ["interface name", ifname.includes("\0") ? "has a NUL" : linkNameProblem(ifname)],
    ["network namespace", netns === "" ? "is missing" : netns.includes("\0") ? "has a NUL" : undefined],
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

function alreadyAttachedError({ cacheDirectory }: RuntimeContext, entry: cache.CacheEntry): CniError {
  const path = cache.cachePath(cacheDirectory, entry);
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
  const [reason, advice] = !occupant
    ? ["it may be attached already", `"${path}" cannot be understood; remove it first: cni run del`]
    : occupant.result === undefined
    ? [
      "an ADD of it has not ended",
      `"${path}" says so; if no process is at it any more, remove what it left: cni run del`,
    ]
    : ["it is attached already", `"${path}" says so; remove it first: cni run del`];
  return new CniError(Code.InvalidEnvironment, `Cannot attach ${describeAttachment(entry)}: ${reason}`, {
    details: advice,
  });
}

/** Undoes all plugins, also those that were not called, as SPEC §ADD asks; the error says what that left behind. */
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
      callPlugin(runtime, list, plugin, { verb: "DEL", parameters: entry, prevResult: result });
    } catch (failure) {
      // A plugin that is not there has left nothing, and neither has its delegate if that is why all of this failed.
      const isNothingToUndo = failure instanceof MissingPluginError ||
        (delegateWasNotRun(error) && delegateWasNotRun(failure));
      if (!isNothingToUndo) failures.push(failure);
    }
  }
  // What could not be removed stays known to DEL and GC.
  if (failures.length === 0) removeCacheEntry(runtime, entry, failures);
  const { code, message, details } = CniError.from(error);
  const notes = failures.map((failure) => `clean-up failed: ${formatCniError(CniError.from(failure))}`);
  return new CniError(code, message, { details: [...(details ? [details] : []), ...notes].join("; "), cause: error });
}

function removeCacheEntry(runtime: RuntimeContext, entry: cache.CacheEntry, failures: unknown[]): void {
  try {
    cache.removeEntry(runtime.cacheDirectory, entry);
  } catch (failure) {
    failures.push(failure);
  }
}

function formatCniError({ message, details }: CniError): string {
  return details ? `${message}; ${details}` : message;
}

/** Makes sure that the network's version has a command. @throws {CniError} code 1 */
export function requireVersion({ name, cniVersion }: NetworkConfigList, verb: CniCommand): void {
  if (atLeast(cniVersion, introducedIn[verb])) return;
  throw new CniError(
    Code.IncompatibleVersion,
    `Cannot ${verb} network "${name}": its cniVersion is ${cniVersion}, and ${verb} came with ${introducedIn[verb]}`,
  );
}
