/**
 * What a plugin is: a name, the shape of its configuration, and what it does for each command.
 *
 * @module
 */
import type { Netns } from "../../../ffi/netns.ts";
import type { Attachment, PluginConfig } from "../../../spec/plugin_config.ts";
import { CniError, Code } from "../../../spec/error.ts";
import type { Result } from "../../../spec/result.ts";
import type { Schema } from "../../../spec/schema.ts";
import type { Owner } from "./owner.ts";

/** What every command gets. `C` is what the plugin's own schema makes of the configuration. */
export interface PluginCall<C> {
  /** The plugin's own keys. */
  readonly config: C;
  /** The keys that the specification defines. */
  readonly pluginConfig: PluginConfig;
  /** The environment of whoever called: where services of the host are. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Finds the process that called, where that can be known. */
  readonly findCallerPid: (() => number) | undefined;
  /** The namespace the plugin runs in. */
  readonly host: Netns;
  /** The IPAM plugin that the configuration names, if it names one. */
  readonly ipam: IpamDelegate | undefined;
  /** Why an attachment cannot live any more, as far as this program remembers it; `undefined` if it may. */
  goneReason?(owner: Owner): string | undefined;
  /** Says something on stderr, where it does not disturb the answer. */
  log(message: string): void;
}

/** What the commands on one attachment get. */
export interface AttachmentCall<C> extends PluginCall<C>, Attachment {
  /** CNI_NETNS as it was given; empty if it was not. */
  readonly sandbox: string;
  /** CNI_ARGS, as far as the plugin declares them. */
  readonly args: Readonly<Record<string, string>>;
  /** Who owns what is set up for this attachment. */
  readonly owner: Owner;
  /** What the plugins before this one set up; of a DEL or CHECK, what the whole ADD did. */
  readonly prevResult: Result | undefined;
}

/** What ADD gets. */
export interface AddCall<C> extends AttachmentCall<C> {
  /** The container's namespace. */
  readonly netns: Netns;
  /** Takes the opposite of each thing done; it runs backwards if the command fails and is dropped if it succeeds. */
  readonly undo: DisposableStack;
}

/** What DEL gets. */
export interface DelCall<C> extends AttachmentCall<C> {
  /** Absent when the namespace is gone, or its path was not given. */
  readonly netns: Netns | undefined;
}

/** What `delBatch` gets for each attachment. */
export interface DelBatchCall<C> extends AttachmentCall<C> {
  /** Opens the container's namespace for as long as `call` runs; it gets what DEL would. */
  withNetns<T>(call: (netns: Netns | undefined) => T): T;
}

/** An IPAM plugin, as the plugin that delegates to it sees it. */
export interface IpamDelegate {
  /** `ipam.type` of the configuration. */
  readonly type: string;
  /** The addresses it gives. Its DEL is called if the ADD that asked for them fails later, or this call itself does, once it was run. */
  add(): Result;
  /** Gives back what the attachment has. @throws {CniError} what it failed with */
  del(): void;
  /** Asks whether the attachment still has what it was given. @throws {CniError} what it found */
  check(): void;
  /** Gives back what belongs to attachments that live no more. @throws {CniError} what it failed with */
  gc(): void;
  /** Asks whether it has addresses to give. @throws {CniError} with code 50 or 51 if it has none */
  status(): void;
}

/** The IPAM plugin of attachments that are removed together. */
export interface BatchIpamDelegate {
  /** Gives back what the attachments have. @returns those for which this is still to be done by their own DEL @throws {CniError} */
  del<C>(calls: readonly DelBatchCall<C>[]): readonly DelBatchCall<C>[];
}

/** Attachments that are removed together: of one network, with one configuration. */
export type DelBatch<C> = readonly [DelBatchCall<C>, ...DelBatchCall<C>[]];

/** What CHECK gets. */
export interface CheckCall<C> extends AttachmentCall<C> {
  /** The container's namespace. */
  readonly netns: Netns;
}

/** What `restore` gets; `prevResult` is what the whole ADD did. */
export type RestoreCall<C> = CheckCall<C>;

/** What `diagnose` gets. */
export interface DiagnoseCall<C> extends PluginCall<C> {
  /** The living attachment that `check` asks about; `status` asks about none. */
  readonly attachment?: { readonly netns: Netns; readonly ifname: string };
}

/** What GC gets. */
export interface GcCall<C> extends PluginCall<C> {
  /** The attachments of this network that still live; everything else of this network is to go. */
  readonly validAttachments: readonly Attachment[];
  /** When that list was made, at the latest, in nanoseconds since 1970: who was attached since cannot be on it. */
  readonly snapshotTime: bigint;
}

/** What a plugin does between calls, in a process of its own that a long-running command starts. */
export interface PluginService {
  /** In a few words: `keeps DHCP leases alive`. */
  readonly summary: string;
  /** Does it for as long as it is needed; a signal ends the process. */
  run(context: ServiceContext): void | Promise<void>;
}

/** What a service gets. */
export interface ServiceContext {
  /** That of the command that starts it. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Says something on stderr. */
  log(message: string): void;
}

/** A plugin. All of it but a service is synchronous: see {@linkcode Netns}. */
export interface Plugin<C = unknown> {
  /** `type` in a configuration, and the name it is called by. */
  readonly name: string;
  /** One sentence. */
  readonly about: string;
  /** The keys of its own, read from the whole configuration object. */
  readonly config: Schema<C>;
  /** The keys of CNI_ARGS that it understands; without this it does not look at CNI_ARGS. */
  readonly args?: readonly string[];
  /** True if it does not look into the container's namespace, so that CNI_NETNS is not opened and `netns` not there. */
  readonly ignoresNetns?: true;
  /** Whether it works on what an earlier plugin of the list set up, so that it cannot be the first one. */
  needsPrevResult?(entry: Pick<PluginConfig, "ipamType">): boolean;
  /** Attaches the container. @returns what to hand on: `prevResult` with what this plugin adds to it */
  add(call: AddCall<C>): Result;
  /** Succeeds when things are gone already (SPEC §DEL). */
  del(call: DelCall<C>): void;
  /**
   * Does what `del` does for attachments of one network that have this configuration in common, two at least, as far as it can be done
   * for all of them at once: the kernel waits whenever links or rules are removed, however many they are. Only `cni run gc` asks for it,
   * in its own process. If it fails, `del` is called for each of them, and finds what is left.
   *
   * @returns those for which `del` is to be called all the same
   */
  delBatch?(calls: DelBatch<C>, ipam: BatchIpamDelegate): readonly DelBatchCall<C>[];
  /** Looks whether all is still there. @throws {CniError} on the first difference from what ADD set up */
  check(call: CheckCall<C>): void;
  /**
   * Puts back the rules of an attachment that somebody took away, as with `nft flush ruleset`, and touches nothing else: no link, no
   * address, no kernel parameter. Only `cni run restore` asks for it, in its own process. Without it, the plugin has no rules.
   *
   * @returns what was missing, in words: `host port 8080/tcp`; where nothing was, nothing may be changed
   */
  restore?(call: RestoreCall<C>): readonly string[];
  /** Removes what belongs to attachments that live no more. Without it, the command goes to the IPAM plugin alone. */
  gc?(call: GcCall<C>): void;
  /**
   * Tells whether an ADD could be served, which includes that its configuration can be used. Without it, the command goes to the IPAM
   * plugin alone.
   *
   * @throws {CniError} with code 50 or 51 if it could not
   */
  status?(call: PluginCall<C>): void;
  /**
   * Says what keeps packets of containers from flowing although an ADD would succeed. Only `cni run status` and `check` ask for it,
   * in their own process: engines call STATUS every few seconds, and hand on what it says to their log. What it throws is a warning too.
   */
  diagnose?(call: DiagnoseCall<C>): readonly string[];
  /** What it does between calls. No call starts it. */
  readonly service?: PluginService;
}

/**
 * Declares a plugin, taking the type of its configuration from its schema.
 *
 * @example
 * ```ts
 * import { plugin, schema } from "./mod.ts";
 *
 * export default plugin({
 *   name: "mtu",
 *   about: "Says in the result how large packets may be",
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
 * try {
 *   requirePrevResult({ prevResult: undefined }, "mtu");
 * } catch (error) {
 *   console.log((error as Error).message); // Cannot run "mtu": prevResult is missing
 * }
 * ```
 *
 * @throws {CniError} code 7 if there is none
 */
export function requirePrevResult({ prevResult }: { readonly prevResult: Result | undefined }, name: string): Result {
  if (prevResult) return prevResult;
  throw new CniError(Code.InvalidConfig, `Cannot run "${name}": prevResult is missing`, {
    details: `"${name}" works on what an earlier plugin of the list set up; put it behind one such as "bridge"`,
  });
}

/**
 * Runs every step, also after one failed.
 *
 * @example
 * ```ts
 * import { cleanUp } from "./mod.ts";
 *
 * try {
 *   cleanUp(
 *     () => {
 *       throw new Error("Cannot remove the first");
 *     },
 *     () => console.log("the second is removed"), // the second is removed
 *   );
 * } catch (error) {
 *   console.log((error as Error).message); // Cannot remove the first
 * }
 * ```
 *
 * @throws {AggregateError} naming every failure, or the failure if it is alone
 */
export function cleanUp(...steps: readonly (() => void)[]): void {
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

/** Takes a step of a DEL that has no right to fail, as what it works on is in the container's hands; says what kept it from its end. */
export function attemptOrLog(log: (message: string) => void, step: () => void): void {
  try {
    step();
  } catch (error) {
    const { message, details } = CniError.from(error);
    log(details ? `${message}; ${details}` : message);
  }
}
