/**
 * What is remembered of an attachment, put together with what the caller says of it.
 *
 * @module
 */
import type { Attachment } from "../spec/plugin_config.ts";
import { CniError, Code } from "../spec/error.ts";
import { type NetworkConfigList, parseNetworkConfigList } from "../spec/network_config_list.ts";
import { parseResult, type Result } from "../spec/result.ts";
import type { JsonObject } from "../spec/schema.ts";
import * as cache from "./cache.ts";
import type { ResolvedRuntimeConf } from "./call_plugin.ts";
import type { RuntimeContext } from "./context.ts";
import { isNetnsOf } from "./netns_gone.ts";

/** An attachment as the caller describes it; what is left out is taken from the cache, and so are the arguments that DEL is to undo. */
export interface RuntimeConf extends Attachment {
  /** Path of the container's network namespace. */
  readonly netns?: string;
  /** CNI_ARGS for every plugin. */
  readonly args?: cache.Args;
  /** By capability; a plugin gets those that its configuration declares. */
  readonly capabilityArgs?: JsonObject;
}

/** An attachment with everything that is known of it, and the configuration that counts for it. */
export interface ResolvedAttachment {
  readonly list: NetworkConfigList;
  readonly entry: cache.CacheEntry & ResolvedRuntimeConf;
}

/**
 * What is known of an attachment.
 *
 * @param network its configuration, or its name if that is gone
 * @param purpose what it is for: to remove it, the arguments of its ADD count before those given; errors name it
 * @param cached what is remembered, if that was read already
 * @throws {CniError} if there is no configuration, neither remembered nor given
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
      `Using the configuration that ${describeAttachment(key)} was attached with: that of now has changed since`,
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

/**
 * The path of the attachment's own namespace, where that can be told: what is at the given path, or at the remembered one, may be another's
 * by now, and all that is given may be a slip. Empty if its own is not known any more.
 */
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

/** What was asked for is there to be removed, whatever the caller names of it now. */
function argumentsForDel(
  { log }: RuntimeContext,
  { args, capabilityArgs, ...key }: cache.CacheEntry,
  given: RuntimeConf,
): Pick<cache.CacheEntry, "args" | "capabilityArgs"> {
  const isDifferent = (requested: unknown, cached: unknown) =>
    requested !== undefined && !Bun.deepEquals(requested, cached);
  if (isDifferent(given.args, args) || isDifferent(given.capabilityArgs, capabilityArgs)) {
    log(`Using the arguments that ${describeAttachment(key)} was attached with: those of now are others`);
  }
  return { args, capabilityArgs };
}

/** A file that cannot be understood must not keep a container from being removed. */
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

/** All attachments of a network mostly have the same configuration. */
let lastList: NetworkConfigList | undefined;

function cachedNetworkList({ log }: RuntimeContext, entry: cache.CacheEntry): NetworkConfigList | undefined {
  if (entry.config === "") return undefined;
  try {
    const source = `the configuration that ${describeAttachment(entry)} was attached with`;
    const list = lastList?.text === entry.config
      ? { ...lastList, source }
      : parseNetworkConfigList(entry.config, source);
    lastList = list;
    return list.name === entry.network && list.plugins.length > 0 ? list : undefined;
  } catch (error) {
    log(`${CniError.from(error).message}; continuing without it`);
    return undefined;
  }
}

/** The result of its ADD in the current form; without one that can be read, plugins do what they can. */
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

/** The attachment, in a sentence. */
export function describeAttachment({ network, containerId, ifname }: cache.AttachmentKey): string {
  return `"${ifname}" of container "${containerId}" on network "${network}"`;
}
