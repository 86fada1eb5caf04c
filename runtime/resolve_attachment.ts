/**
 * What is remembered of an attachment, put together with what the caller says of it.
 *
 * @module
 */
import type { Attachment } from "../spec/plugin_config.ts";
import { CniError, Code } from "../spec/error.ts";
import { type NetworkList, parseNetworkList } from "../spec/network_config_list.ts";
import { parseResult, type Result } from "../spec/result.ts";
import type { JsonObject } from "../spec/schema.ts";
import * as cache from "./cache.ts";
import type { Parameters } from "./call_plugin.ts";
import { isOwnPath } from "./stale.ts";

/** Where things are remembered. */
export interface Memory {
  readonly cacheDirectory: string;
  log(message: string): void;
}

/** An attachment as the caller describes it; what is left out is taken from the cache, and so are the arguments that DEL is to undo. */
export interface RecallParameters extends Attachment {
  /** Path of the container's network namespace. */
  readonly netns?: string;
  /** CNI_ARGS for every plugin. */
  readonly args?: cache.Args;
  /** By capability; a plugin gets those that its configuration declares. */
  readonly capabilityArgs?: JsonObject;
}

/** An attachment with everything that is known of it, and the configuration that counts for it. */
export interface Recalled {
  readonly list: NetworkList;
  readonly entry: cache.CacheEntry & Parameters;
}

/**
 * What is known of an attachment.
 *
 * @param network its configuration, or its name if that is gone
 * @param verb what it is for, in an error
 * @param cached what is remembered, if that was read already
 * @throws {CniError} if there is no configuration, neither remembered nor given
 */
export function recall(
  memory: Memory,
  network: NetworkList | string,
  parameters: RecallParameters,
  verb: string,
  cached: cache.CacheEntry | undefined = findCached(memory, keyFor(network, parameters)),
): Recalled {
  const given = typeof network === "string" ? undefined : network;
  const key = keyFor(network, parameters);
  const remembered = cached && findRemembered(memory, cached);
  const list = remembered ?? given;
  if (!list) {
    throw new CniError(
      Code.InvalidConfig,
      `Cannot ${verb} ${describe(key)}: there is no configuration of that network`,
      {
        details: `neither does "${cache.cachePath(memory.cacheDirectory, key)}" hold the one it was attached with`,
      },
    );
  }
  if (remembered && given && remembered.text !== given.text) {
    memory.log(`Using the configuration that ${describe(key)} was attached with: that of now has changed since`);
  }
  const { args, capabilityArgs } = verb === "remove" && cached?.config
    ? argumentsOf(memory, cached, parameters)
    : parameters;
  return {
    list,
    entry: {
      ...key,
      config: list.text,
      netns: cached && verb === "remove"
        ? netnsToClear(memory, cached, parameters)
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
function netnsToClear({ log }: Memory, cached: cache.CacheEntry, { netns: given }: RecallParameters): string {
  const known = cached.netns ?? "";
  const path = given ?? known;
  const isOwn = isOwnPath(cached, path);
  if (path === "" || isOwn) return path;
  if (path !== known && isOwnPath(cached, known)) {
    log(`Removing ${describe(cached)} in "${known}", where it was attached: "${path}" is not its namespace`);
    return known;
  }
  if (isOwn === undefined) return path;
  if (given) log(`Removing ${describe(cached)} without its namespace, which is not at "${path}"`);
  return "";
}

/** What was asked for is there to be removed, whatever the caller names of it now. */
function argumentsOf(
  { log }: Memory,
  { args, capabilityArgs, ...key }: cache.CacheEntry,
  given: RecallParameters,
): Pick<cache.CacheEntry, "args" | "capabilityArgs"> {
  const isOther = (wanted: unknown, was: unknown) => wanted !== undefined && !Bun.deepEquals(wanted, was);
  if (isOther(given.args, args) || isOther(given.capabilityArgs, capabilityArgs)) {
    log(`Using the arguments that ${describe(key)} was attached with: those of now are others`);
  }
  return { args, capabilityArgs };
}

/** A file that cannot be understood must not keep a container from being removed. */
function findCached({ cacheDirectory, log }: Memory, key: cache.AttachmentKey): cache.CacheEntry | undefined {
  try {
    return cache.findEntry(cacheDirectory, key);
  } catch (error) {
    const { code, message } = CniError.from(error);
    if (code !== Code.DecodeFailure) throw error;
    log(`${message}; going on without it`);
    return undefined;
  }
}

function findRemembered({ log }: Memory, entry: cache.CacheEntry): NetworkList | undefined {
  if (entry.config === "") return undefined;
  try {
    const list = parseNetworkList(entry.config, `the configuration that ${describe(entry)} was attached with`);
    return list.name === entry.network && list.plugins.length > 0 ? list : undefined;
  } catch (error) {
    log(`${CniError.from(error).message}; going on without it`);
    return undefined;
  }
}

/** The result of its ADD in the current form; without one that can be read, plugins do what they can. */
export function findPrevResult({ log }: Memory, { list, entry }: Recalled): Result | undefined {
  try {
    return entry.result === undefined ? undefined : parseResult(entry.result, list.cniVersion, "result");
  } catch (error) {
    log(`${CniError.from(error).message}; going on without the result that ${describe(entry)} was attached with`);
    return undefined;
  }
}

function keyFor(network: NetworkList | string, attachment: Attachment): cache.AttachmentKey {
  return keyOf(typeof network === "string" ? network : network.name, attachment);
}

export function keyOf(network: string, { containerId, ifname }: Attachment): cache.AttachmentKey {
  return { network, containerId, ifname };
}

/** The attachment, in a sentence. */
export function describe({ network, containerId, ifname }: cache.AttachmentKey): string {
  return `"${ifname}" of container "${containerId}" on network "${network}"`;
}
