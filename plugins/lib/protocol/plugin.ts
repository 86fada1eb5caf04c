import type { Netns } from "../../../ffi/netns/netns.ts";
import type { Attachment, PluginConfig } from "../../../spec/plugin_config.ts";
import { CniError, Code } from "../../../spec/error.ts";
import type { Result } from "../../../spec/result.ts";
import type { Schema } from "../../../spec/schema.ts";
import type { PluginModel } from "../model/plugin_model.ts";
import type { Owner } from "../model/owner.ts";
import type { RememberedAdd } from "./remembered_add.ts";

/** What every command gets. `C` is the type of the plugin's own keys. */
export interface PluginCall<C> {
  /** The plugin's own keys, as its schema reads them. */
  readonly config: C;
  /** The keys that the specification defines. */
  readonly pluginConfig: PluginConfig;
  /** The caller's environment, which may be another process's. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Finds the calling process, if it is known. */
  readonly findCallerPid: (() => number) | undefined;
  /** The namespace in which the plugin runs: the host's. */
  readonly host: Netns;
  /** The configuration's IPAM plugin, if any. */
  readonly ipam: IpamDelegate | undefined;
  /** Why an attachment must be dead, if this program remembers a reason. */
  goneReason?(owner: Owner): string | undefined;
  /** Lists the ADDs of a plugin in the caches of engines and of this program. It reads each file: rarely needed. */
  rememberedAdds?(type: string): readonly RememberedAdd[];
  /** Writes a message of the plugin to stderr. */
  log(message: string): void;
}

/** What the commands on one attachment get. */
export interface AttachmentCall<C> extends PluginCall<C>, Attachment {
  /** CNI_NETNS as given, else empty. */
  readonly sandbox: string;
  /** The declared keys of CNI_ARGS. */
  readonly args: Readonly<Record<string, string>>;
  /** The attachment, as owner of links and rules. */
  readonly owner: Owner;
  /** The result of earlier plugins; for DEL and CHECK, of the whole ADD. */
  readonly prevResult: Result | undefined;
}

/** What ADD gets, with a namespace and an undo. */
export interface AddCall<C> extends AttachmentCall<C> {
  /** The container's namespace, which is open until ADD returns. */
  readonly netns: Netns;
  /** Takes the undo of each step. If the command fails, they run backwards. */
  readonly undo: DisposableStack;
}

/** What DEL gets; the container may be gone. */
export interface DelCall<C> extends AttachmentCall<C> {
  /** Absent if it is gone or was not given. */
  readonly netns: Netns | undefined;
}

/** What `delBatch` gets for each attachment. */
export interface DelBatchCall<C> extends AttachmentCall<C> {
  /** Opens the container's namespace while `call` runs. */
  withNetns<T>(call: (netns: Netns | undefined) => T): T;
}

/** An IPAM plugin, for the plugin that delegates to it. */
export interface IpamDelegate {
  /** `ipam.type` */
  readonly type: string;
  /** Asks for addresses. If this or a later step of the ADD fails, its DEL is called. */
  add(): Result;
  /** Releases the attachment's addresses. @throws {CniError} */
  del(): void;
  /** Checks that the attachment still has its addresses. @throws {CniError} */
  check(): void;
  /** Releases addresses of stale attachments. @throws {CniError} */
  gc(): void;
  /** Checks that it has free addresses. @throws {CniError} code 50 or 51 */
  status(): void;
}

/** The IPAM plugin of a batch. */
export interface BatchIpamDelegate {
  /** Releases addresses. @returns the calls that still need a DEL @throws {CniError} */
  del<C>(calls: readonly DelBatchCall<C>[]): readonly DelBatchCall<C>[];
}

/** Attachments of one network and configuration, removed together. */
export type DelBatch<C> = readonly [DelBatchCall<C>, ...DelBatchCall<C>[]];

/** What CHECK gets, with the container's namespace. */
export interface CheckCall<C> extends AttachmentCall<C> {
  /** The container's namespace, which is open until CHECK returns. */
  readonly netns: Netns;
}

/** What `restore` gets; `prevResult` is that of the whole ADD. */
export type RestoreCall<C> = CheckCall<C>;

/** What `diagnose` gets from `status` and `check`. */
export interface DiagnoseCall<C> extends PluginCall<C> {
  /** The attachment of `check`; absent for `status`. */
  readonly attachment?: { readonly netns: Netns; readonly ifname: string };
}

/** What GC gets: the attachments that stay. */
export interface GcCall<C> extends PluginCall<C> {
  /** The attachments of this network to keep. */
  readonly validAttachments: readonly Attachment[];
  /** When that list was made at the latest, in nanoseconds since 1970: newer attachments are not on it. */
  readonly snapshotTime: bigint;
}

/** What a plugin does between calls, in its own process. */
export interface PluginService {
  /** `keeps DHCP leases alive` */
  readonly summary: string;
  /** Runs until its work is done or a signal ends the process. */
  run(context: ServiceContext): void | Promise<void>;
}

/** What a service gets from its process. */
export interface ServiceContext {
  /** The environment of the service's process. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Writes a message of the service to stderr. */
  log(message: string): void;
}

/** A plugin. All but its service is synchronous: see {@linkcode Netns}. */
export interface Plugin<C = unknown> {
  /** `type` in a configuration, and the program's name. */
  readonly name: string;
  /** One sentence about the plugin, for help texts. */
  readonly about: string;
  /** Its own keys, read from the whole configuration. */
  readonly config: Schema<C>;
  /** Its keys of CNI_ARGS; `all` if its configuration names them. Without this it ignores CNI_ARGS. */
  readonly args?: readonly string[] | "all";
  /** Does not open CNI_NETNS; calls have no `netns`. */
  readonly ignoresNetns?: true;
  /** Its DEL removes what `restore` puts back, and nothing else. */
  readonly hasRulesOnly?: true;
  /** Whether it needs an earlier plugin in the list. */
  needsPrevResult?(entry: Pick<PluginConfig, "ipamType">): boolean;
  /**
   * Refuses what the schema accepts and every ADD refuses, without a look at the machine. Only `cni lint` calls it.
   *
   * @throws {ConfigError}
   */
  validate?(call: Pick<PluginCall<C>, "config" | "pluginConfig">): void;
  /** Attaches the container. @returns `prevResult` with this plugin's additions */
  add(call: AddCall<C>): Result;
  /** Detaches the container. Succeeds if everything is gone already (SPEC §DEL). */
  del(call: DelCall<C>): void;
  /**
   * `del` for two or more attachments, where one step can serve all. The kernel waits once per removal of links or
   * rules, for any number of them. Only `cni run gc` calls it, in its own process. If it fails, each gets a `del`.
   *
   * @returns the calls that still need a `del`
   */
  delBatch?(calls: DelBatch<C>, ipam: BatchIpamDelegate): readonly DelBatchCall<C>[];
  /** Compares with what ADD set up. @throws {CniError} on the first difference */
  check(call: CheckCall<C>): void;
  /**
   * Restores an attachment's rules, as after `nft flush ruleset`, and nothing else: no link, address or kernel
   * parameter. Only `cni run restore` calls it, in its own process.
   *
   * @returns what was missing, as text: `host port 8080/tcp`; if nothing was, it may change nothing
   */
  restore?(call: RestoreCall<C>): readonly string[];
  /** Removes what stale attachments own. Without it, only IPAM gets the command. */
  gc?(call: GcCall<C>): void;
  /** Checks that an ADD would succeed. Without it, only IPAM gets the command. @throws {CniError} code 50 or 51 */
  status?(call: PluginCall<C>): void;
  /**
   * Reports what stops packets although an ADD would succeed. Only `cni run status` and `check` call it, in their own
   * process. Engines call STATUS every few seconds and log the answer. An error is a warning too.
   */
  diagnose?(call: DiagnoseCall<C>): readonly string[];
  /** What it does between calls; no call starts it. */
  readonly service?: PluginService;
  /**
   * What it tells `cni lint`, `doctor` and the like of its networks; no call of a plugin asks. Only built-in plugins
   * have one.
   *
   * @internal
   */
  readonly model?: () => PluginModel;
}

/**
 * Declares a plugin; its schema gives the type of its configuration.
 *
 * @example
 * ```ts
 * import { plugin, schema } from "./mod.ts";
 *
 * export default plugin({
 *   name: "mtu",
 *   about: "Adds an MTU to the result",
 *   config: schema.object({ mtu: schema.int({ min: 68, max: 65535 }) }),
 *   add: ({ config: { mtu }, prevResult }) => ({
 *     ...prevResult,
 *     interfaces: prevResult?.interfaces?.map((reported) => ({ ...reported, mtu })) ?? [],
 *   }),
 *   del: () => {},
 *   check: () => {},
 * });
 * ```
 */
export function plugin<C>(definition: Plugin<C>): Plugin<C> {
  return definition;
}

/**
 * The result of the plugins before this one.
 *
 * @example
 * ```ts
 * import { requirePrevResult } from "./mod.ts";
 *
 * console.log(requirePrevResult({ prevResult: { interfaces: [{ name: "eth0" }] } }, "mtu").interfaces?.length); // 1
 * ```
 *
 * @throws {CniError} code 7 if there is none
 */
export function requirePrevResult({ prevResult }: { readonly prevResult: Result | undefined }, name: string): Result {
  if (prevResult) return prevResult;
  throw new CniError(Code.InvalidConfig, `Cannot run "${name}": prevResult is missing`, {
    details: `"${name}" changes what an earlier plugin of the list set up: put it after one such as "bridge"`,
  });
}

/**
 * Runs every step, even if one fails.
 *
 * @example
 * ```ts
 * import { runAllSteps } from "./mod.ts";
 *
 * try {
 *   runAllSteps(
 *     () => JSON.parse("{"),
 *     () => console.log("the second runs"), // the second runs
 *   );
 * } catch (error) {
 *   console.log(error instanceof SyntaxError); // true
 * }
 * ```
 *
 * @throws {AggregateError} of all failures; a single failure as it is
 */
export function runAllSteps(...steps: readonly (() => void)[]): void {
  const failures: unknown[] = [];
  for (const step of steps) {
    try {
      step();
    } catch (error) {
      failures.push(error);
    }
  }
  if (failures.length === 1) throw failures[0];
  if (failures.length > 1) throw new AggregateError(failures, "Cannot clean up everything");
}

/**
 * Removes the container's link and releases its addresses, as steps for {@linkcode runAllSteps}.
 *
 * An address is free only without the link. But dhcp tells a server through the link that it is.
 */
export function releaseSteps(ipam: IpamDelegate | undefined, removeLink: () => void): readonly (() => void)[] {
  return inOrderOfRelease(ipam, removeLink, () => ipam?.del());
}

/** As {@linkcode releaseSteps}, of stale attachments. */
export function collectionSteps(ipam: IpamDelegate | undefined, removeLinks: () => void): readonly (() => void)[] {
  return inOrderOfRelease(ipam, removeLinks, () => ipam?.gc());
}

function inOrderOfRelease(
  ipam: IpamDelegate | undefined,
  removeLinks: () => void,
  release: () => void,
): readonly (() => void)[] {
  return ipam?.type === "dhcp" ? [release, removeLinks] : [removeLinks, release];
}

/** For what the container controls: a failure is logged, and must not fail DEL. */
export function attemptOrLog(log: (message: string) => void, step: () => void): void {
  try {
    step();
  } catch (error) {
    const { message, details } = CniError.from(error);
    log(details ? `${message}; ${details}` : message);
  }
}
