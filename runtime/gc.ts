/**
 * Garbage collection: removing what is left of containers that live no more.
 *
 * Thousands may have died at once, and the kernel waits some milliseconds whenever a link or a rule goes. So plugins of this process get
 * all of them together, plugin after plugin, in the order of a DEL; those that are programs get them one by one. An attachment is forgotten
 * when all of its plugins are through with it, so that whoever is killed in between finds it again.
 *
 * @module
 */
import { SystemError } from "../ffi/sys/error.ts";
import { findStatus } from "../ffi/sys/stat.ts";
import { momentAfterNow, writtenSince } from "../ffi/sys/mtime.ts";
import type { Attachment } from "../spec/plugin_config.ts";
import { containerIdProblem, ifnameProblem } from "../spec/env.ts";
import { CniError } from "../spec/error.ts";
import type { NetworkList } from "../spec/network_config_list.ts";
import { atLeast, since } from "../spec/version.ts";
import * as cache from "./cache.ts";
import { callForMany, type CallOptions, callPlugin } from "./call_plugin.ts";
import { alone } from "./lock.ts";
import { describe, findPrevResult, keyOf, recall, type Recalled } from "./resolve_attachment.ts";
import type { RuntimeOptions } from "./operations.ts";

/** So many are forgotten by the time that a killed process has not come to the others. */
const MOST_TOGETHER = 512;

/**
 * Removes what is left of containers that live no more: detaches what is remembered and not in `valid`, then lets the plugins look.
 *
 * Nothing is attached, checked or detached by this runtime meanwhile.
 *
 * @param valid all attachments that are to stay
 * @param madeAt when that was known, in nanoseconds since 1970; who was attached since stays as well
 * @throws {CniError} naming everything that failed, after everything was tried
 */
export function gc(
  runtime: RuntimeOptions,
  list: NetworkList,
  valid: readonly Attachment[],
  madeAt = momentAfterNow(),
): void {
  if (list.disableGC) return;
  using _ = alone(runtime.cacheDirectory, { inherited: true });
  const failures: unknown[] = [];
  const living = [...valid];
  attempt(failures, () => {
    const isYoung = youngIn(runtime.cacheDirectory, madeAt);
    for (const dead of groupsOf(recallDead(runtime, list, living, isYoung, failures))) detach(runtime, dead, failures);
  });
  if (atLeast(list.cniVersion, since.GC)) {
    for (const plugin of list.plugins) {
      attempt(failures, () => callPlugin(runtime, list, plugin, { verb: "GC", validAttachments: living, madeAt }));
    }
  }
  if (failures.length === 1) throw failures[0];
  if (failures.length > 1) throw CniError.from(new AggregateError(failures, `Cannot clean up network "${list.name}"`));
}

function attempt(failures: unknown[], step: () => void): boolean {
  try {
    step();
    return true;
  } catch (error) {
    failures.push(error);
    return false;
  }
}

/** Others wait while garbage is collected, but not while it waits for them. Who has come meanwhile cannot be on a list that was made before. */
export function youngIn(cacheDirectory: string, madeAt: bigint): (entry: cache.CacheEntry) => boolean {
  const isYoung = writtenSince(madeAt);
  return (entry) => isYoung(findStatus(cache.cachePath(cacheDirectory, entry))?.modified ?? 0n);
}

/** @param valid to which those that are too young to be on it are added */
function recallDead(
  runtime: RuntimeOptions,
  list: NetworkList,
  valid: Attachment[],
  isYoung: (entry: cache.CacheEntry) => boolean,
  failures: unknown[],
): Recalled[] {
  const living = new Set(valid.map(textOf));
  const recalled: Recalled[] = [];
  const dead = cache.listEntries(runtime.cacheDirectory, list.name, (message, error, name = "") => {
    // What the disk does not give now, a further gc may get; what makes no sense never will.
    if (error instanceof SystemError) return void failures.push(error);
    const isDamaged = error instanceof cache.DamagedEntryError &&
      findStatus(`${runtime.cacheDirectory}/results/${name}`)?.isFile;
    const attachment = isDamaged ? attachmentOf(name, list.name) : undefined;
    if (!attachment) return runtime.log(`${message}; remove that file if its container is gone`);
    const key = keyOf(list.name, attachment);
    if (living.has(textOf(attachment))) return runtime.log(`${message}; ${describe(key)} is to stay`);
    runtime.log(`${message}; removing what may be left of ${describe(key)}`);
    recalled.push({ list, entry: { ...key, config: list.text, netns: "", args: [], capabilityArgs: {} } });
  }).filter((each) => !living.has(textOf(each)));
  for (const entry of dead) {
    const { containerId, ifname } = entry;
    if (isYoung(entry)) {
      valid.push({ containerId, ifname });
      continue;
    }
    attempt(failures, () => void recalled.push(recall(runtime, list, { containerId, ifname }, "remove", entry)));
  }
  return recalled;
}

function textOf({ containerId, ifname }: Attachment): string {
  return `${containerId}/${ifname}`;
}

/**
 * Whose entry has this file name, which begins with the network's: `undefined` if that could be several, as names of networks, ids and
 * interfaces may all have a dash.
 */
function attachmentOf(name: string, network: string): Attachment | undefined {
  // The second form is that of ids which are made from the path of a namespace.
  const found = /^([^-]+|cnitool-[0-9a-f]{20})-([^-]+)$/.exec(name.slice(network.length + 1));
  const [, containerId = "", ifname = ""] = found ?? [];
  return containerIdProblem(containerId) || ifnameProblem(ifname) ? undefined : { containerId, ifname };
}

/** By the configuration that they were attached with, which mostly is the same for all. */
function groupsOf(all: readonly Recalled[]): Recalled[][] {
  const byText = Map.groupBy(all, ({ list }) => list.text);
  return [...byText.values()].flatMap((group) =>
    Array.from(
      { length: Math.ceil(group.length / MOST_TOGETHER) },
      (_, i) => group.slice(i * MOST_TOGETHER, (i + 1) * MOST_TOGETHER),
    )
  );
}

/** Detaches containers with one configuration; of one that a plugin fails for, the plugins before it are not called. */
function detach(runtime: RuntimeOptions, dead: readonly Recalled[], failures: unknown[]): void {
  const { list } = dead[0]!;
  let rest = dead.map((each): CallOptions & Recalled => ({
    ...each,
    verb: "DEL",
    parameters: each.entry,
    prevResult: findPrevResult(runtime, each),
  }));
  for (const plugin of list.plugins.toReversed()) {
    const left = callForMany(runtime, list, plugin, rest);
    rest = rest.filter((each) => !left.has(each) || attempt(failures, () => callPlugin(runtime, list, plugin, each)));
  }
  for (const { entry } of rest) attempt(failures, () => cache.removeEntry(runtime.cacheDirectory, entry));
}
