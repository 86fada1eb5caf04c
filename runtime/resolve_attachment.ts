import type { Attachment } from "../spec/plugin_config.ts";
import { CniError, Code } from "../spec/error.ts";
import { type NetworkConfigList, parseNetworkConfigList } from "../spec/network_config_list.ts";
import { parseResult, type Result } from "../spec/result.ts";
import type { JsonObject } from "../spec/schema.ts";
import * as cache from "./cache.ts";
import type { ResolvedRuntimeConf } from "./call_plugin.ts";
import type { RuntimeContext } from "./context.ts";
import { isNetnsOf } from "./netns_gone.ts";

/** An attachment as the caller describes it. The cache completes it, and gives DEL's arguments. */
export interface RuntimeConf extends Attachment {
  /** The path of the container's namespace. */
  readonly netns?: string;
  /** CNI_ARGS that every plugin gets. */
  readonly args?: cache.Args;
  /** Plugins get those capabilities that they declare. */
  readonly capabilityArgs?: JsonObject;
}

export interface ResolvedAttachment {
  readonly list: NetworkConfigList;
  readonly entry: cache.CacheEntry & ResolvedRuntimeConf;
}

/**
 * Combines what the cache and the caller say.
 *
 * @param network its configuration, or its name if that is gone
 * @param purpose for `remove`, the ADD's arguments win
 * @throws {CniError} if no configuration is cached or given
 */
export function resolveAttachment(
  store: RuntimeContext,
  network: NetworkConfigList | string,
  parameters: RuntimeConf,
  purpose: "remove" | "check" | "restore",
  cached: cache.CacheEntry | undefined = findUsableEntry(store, attachmentKeyFor(network, parameters)),
): ResolvedAttachment {
  const givenList = typeof network === "string" ? undefined : network;
  const key = attachmentKeyFor(network, parameters);
  const cachedList = cached && cachedNetworkList(store, cached);
  const list = cachedList ?? givenList;
  if (!list) {
    throw new CniError(
      Code.InvalidConfig,
      `Cannot ${purpose} ${describeAttachment(key)}: there is no configuration of that network`,
      {
        details: `neither does "${cache.cachePath(store.cacheDirectory, key)}" hold the one it was attached with`,
      },
    );
  }
  if (cachedList && givenList && cachedList.text !== givenList.text) {
    store.log(
      `Using the configuration that ${describeAttachment(key)} was attached with: it has changed since`,
    );
  }
  const { args, capabilityArgs } = purpose === "remove" && cached?.config
    ? argumentsForDel(store, cached, parameters)
    : parameters;
  return {
    list,
    entry: {
      ...key,
      config: list.text,
      netns: cached && purpose === "remove"
        ? netnsForDel(store, cached, parameters)
        : parameters.netns ?? cached?.netns ?? "",
      args: args ?? cached?.args ?? [],
      capabilityArgs: capabilityArgs ?? cached?.capabilityArgs ?? {},
      ...(cached?.result !== undefined && { result: cached.result }),
    },
  };
}

/** Returns nothing if unknown. Another may be at the cached path, and the given path may be wrong. */
function netnsForDel(
  { hostContext: { openNetns }, log }: RuntimeContext,
  cached: cache.CacheEntry,
  { netns: given }: RuntimeConf,
): string {
  const cachedNetns = cached.netns ?? "";
  const path = given ?? cachedNetns;
  const isOwn = isNetnsOf(cached, path, openNetns);
  if (path === "" || isOwn) return path;
  if (path !== cachedNetns && isNetnsOf(cached, cachedNetns, openNetns)) {
    log(
      `Removing ${
        describeAttachment(cached)
      } in "${cachedNetns}", where it was attached: "${path}" is not its namespace`,
    );
    return cachedNetns;
  }
  if (isOwn === undefined) return path;
  if (given) log(`Removing ${describeAttachment(cached)} without its namespace, which is not at "${path}"`);
  return "";
}

function argumentsForDel(
  { log }: RuntimeContext,
  { args, capabilityArgs, ...key }: cache.CacheEntry,
  given: RuntimeConf,
): Pick<cache.CacheEntry, "args" | "capabilityArgs"> {
  const isDifferent = (requested: unknown, cached: unknown) =>
    requested !== undefined && !isDeepEqual(requested, cached);
  if (isDifferent(given.args, args) || isDifferent(given.capabilityArgs, capabilityArgs)) {
    log(`Using the arguments that ${describeAttachment(key)} was attached with: the current ones differ`);
  }
  return { args, capabilityArgs };
}

function isDeepEqual(a: unknown, b: unknown): boolean {
  // Loading the module takes a millisecond, and Deno has nothing else.
  if (typeof Bun === "undefined") return process.getBuiltinModule("node:util").isDeepStrictEqual(a, b);
  return Bun.deepEquals(a, b);
}

function findUsableEntry(
  { cacheDirectory, log }: RuntimeContext,
  key: cache.AttachmentKey,
): cache.CacheEntry | undefined {
  try {
    return cache.findEntry(cacheDirectory, key);
  } catch (error) {
    const { code, message } = CniError.from(error);
    if (code !== Code.DecodeFailure) throw error;
    log(`${message}; continuing without it`);
    return undefined;
  }
}

function cachedNetworkList(
  { cachedLists, log }: RuntimeContext,
  entry: cache.CacheEntry,
): NetworkConfigList | undefined {
  if (entry.config === "") return undefined;
  try {
    const source = `the configuration that ${describeAttachment(entry)} was attached with`;
    const known = cachedLists.get(entry.config);
    const list = known ? { ...known, source } : parseNetworkConfigList(entry.config, source);
    cachedLists.set(entry.config, list);
    return list.name === entry.network && list.plugins.length > 0 ? list : undefined;
  } catch (error) {
    log(`${CniError.from(error).message}; continuing without it`);
    return undefined;
  }
}

export function findCachedResult({ log }: RuntimeContext, { list, entry }: ResolvedAttachment): Result | undefined {
  try {
    return entry.result === undefined ? undefined : parseResult(entry.result, list.cniVersion, "result");
  } catch (error) {
    log(
      `${CniError.from(error).message}; continuing without the result that ${
        describeAttachment(entry)
      } was attached with`,
    );
    return undefined;
  }
}

function attachmentKeyFor(network: NetworkConfigList | string, attachment: Attachment): cache.AttachmentKey {
  return attachmentKey(typeof network === "string" ? network : network.name, attachment);
}

export function attachmentKey(network: string, { containerId, ifname }: Attachment): cache.AttachmentKey {
  return { network, containerId, ifname };
}

export function describeAttachment({ network, containerId, ifname }: cache.AttachmentKey): string {
  return `"${ifname}" of container "${containerId}" on network "${network}"`;
}
