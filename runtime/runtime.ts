import type { Attachment } from "../spec/plugin_config.ts";
import type { NetworkConfigList } from "../spec/network_config_list.ts";
import type { Result } from "../spec/result.ts";
import type { JsonObject } from "../spec/schema.ts";
import { listAttachments, type NetworkAttachment } from "./attachments.ts";
import { type DerivedRequest, type DeriveOptions, deriveRequests } from "./derive.ts";
import { gcNetworkList } from "./gc.ts";
import type { RuntimeConf } from "./resolve_attachment.ts";
import { restoreAttachments, type RestoreReport } from "./restore.ts";
import { findPlugin } from "../plugins/registry.ts";
import { nowCeil } from "../ffi/sys/mtime.ts";
import { DEFAULT_CACHE_DIRECTORY, findEntry, hasCacheFile } from "./cache.ts";
import { findPluginProgram } from "../plugins/lib/protocol/exec.ts";
import { findUnknownCapabilities, findUnknownKeys } from "./unknown_keys.ts";
import { resolveValidAttachments } from "./named_attachments.ts";
import { addNetworkList, type AddRuntimeConf } from "./add.ts";
import { inheritedEnvironment } from "./call_plugin.ts";
import { checkNetworkList } from "./check.ts";
import type { RuntimeContext } from "./context.ts";
import { delNetworkList } from "./del.ts";
import { getNetworkListStatus } from "./status.ts";
import { printStderr } from "../ffi/sys/stdio.ts";
import { createHostContext, type HostContextOptions } from "./host_context.ts";

export { UnknownAttachmentError } from "./named_attachments.ts";

const DEFAULT_PLUGIN_DIRECTORIES = ["/opt/cni/bin"];

/** Says how a {@linkcode Runtime} works. */
export interface RuntimeOptions extends HostContextOptions {
  /** The environment that programs inherit: `process.env`. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Finds the engine: `process.ppid`. Its listeners for a container are no port conflict. */
  readonly findCallerPid?: () => number;
  /** Where programs are, absolute; default: `["/opt/cni/bin"]`. */
  readonly pluginDirectories?: readonly string[];
  /** Where attachments are cached, as by libcni; default: `/var/lib/cni`. */
  readonly cacheDirectory?: string;
  /** Whether a failed ADD is undone; else the caller owes a {@linkcode Runtime.del}. Default: true. */
  readonly rollback?: boolean;
  /** Takes messages of built-in plugins, behind their names; default: `log`. */
  readonly pluginLog?: (message: string) => void;
}

/** Says how {@linkcode Runtime.gc} reads its list. */
export interface GcOptions {
  /** When the list was made, in nanoseconds since 1970; younger attachments stay. Default: now. */
  readonly snapshotTime?: bigint;
  /** A person wrote the list: ids may be names of namespaces, and unknown ones are refused as misspelt. */
  readonly resolveNames?: boolean;
  /**
   * With `resolveNames`: unknown names are logged and stay valid. GC fails only if no name is known and an attachment
   * may live.
   */
  readonly ignoreUnknown?: boolean;
  /** Told after each part of the work that `done` of `total` parts are done. */
  readonly progress?: (done: number, total: number) => void;
}

/**
 * Attaches containers to networks, and remembers how to detach them.
 *
 * Methods wait for the plugins, and throw a {@linkcode CniError} with the plugin's code. Plugins run in the thread's
 * namespace.
 *
 * @example Attach a container, look after it, detach it
 * ```ts
 * import { loadNetwork, Runtime } from "./mod.ts";
 *
 * const runtime = new Runtime({ env: process.env, cacheDirectory: "/var/lib/cni" });
 * const network = loadNetwork("web", { directory: "/etc/cni/net.d" });
 * const attachment = { containerId: "c1", ifname: "eth0" };
 *
 * const result = runtime.add(network, { ...attachment, netns: "/run/netns/c1" });
 * console.log(result.ips?.[0]?.address); // 10.1.0.2/24
 * runtime.check(network, attachment);
 * console.log(runtime.attachments("web").map(({ containerId, state }) => `${containerId} ${state}`)); // [ "c1 attached" ]
 * runtime.del(network, attachment);
 * console.log(runtime.attachments()); // []
 * ```
 *
 * @example Put back rules that somebody took away
 * ```ts
 * import { loadNetwork, Runtime } from "./mod.ts";
 *
 * const runtime = new Runtime({ env: process.env, log: () => {} });
 * runtime.add(loadNetwork("default"), { containerId: "c1", ifname: "eth0", netns: "/run/netns/c1" });
 * Bun.spawnSync(["nft", "delete table inet cni"]);
 * for (const { containerId, state, plugins } of runtime.restore("default").attachments) {
 *   console.log(`${containerId} ${state}: ${plugins[0]?.restored[0]}`); // c1 restored: masquerading of 10.63.0.2
 * }
 * console.log(runtime.restore("default").attachments[0]?.state); // whole
 * ```
 *
 * @example Find likely mistakes, and see what plugins would read
 * ```ts
 * import { parseNetworkConfigList, Runtime } from "./mod.ts";
 *
 * const runtime = new Runtime({ env: process.env });
 * const network = parseNetworkConfigList(`{ "name": "lan", "plugins": [{ "type": "macvlan", "mastr": "eth0" }] }`);
 * console.log(runtime.unknownKeys(network)[0]); // network "lan": plugins[0].mastr is not read; did you mean "master"?
 * console.log(runtime.deriveRequests(network, { verb: "ADD" }).map(({ type }) => type)); // [ "macvlan" ]
 * ```
 *
 * @example Detach whatever is not in use, by the names of namespaces
 * ```ts
 * import { loadNetwork, Runtime } from "./mod.ts";
 *
 * const runtime = new Runtime({ env: process.env, log: console.log });
 * const network = loadNetwork("web");
 * runtime.add(network, { containerId: "a", ifname: "eth0", netns: "/run/netns/c1" });
 * runtime.add(network, { containerId: "b", ifname: "eth1", netns: "/run/netns/c1" });
 *
 * const valid = [{ containerId: "c1", ifname: "eth1" }];
 * runtime.gc(network, valid, { resolveNames: true }); // Removed "eth0" of container "a" on network "web"
 * console.log(runtime.attachments("web").map(({ containerId }) => containerId)); // [ "b" ]
 * console.log(runtime.attachedConfiguration("web", { containerId: "b", ifname: "eth1" }) === network.text); // true
 * ```
 *
 * @example Use a plugin of your own
 * ```ts
 * import { parseNetworkConfigList, plugin, Runtime, schema } from "./mod.ts";
 *
 * const greet = plugin({
 *   name: "greet",
 *   about: "Says hello and changes nothing",
 *   config: schema.object({ greeting: schema.withDefault(schema.string, "hello") }),
 *   add: ({ config, containerId, log }) => {
 *     log(`${config.greeting}, ${containerId}`);
 *     return {};
 *   },
 *   del: () => {},
 *   check: () => {},
 * });
 * const runtime = new Runtime({ env: process.env, plugins: [greet], log: console.log });
 * const network = parseNetworkConfigList(`{ "cniVersion": "1.1.0", "name": "hi", "plugins": [{ "type": "greet" }] }`);
 * runtime.add(network, { containerId: "c1", ifname: "eth0", netns: "/run/netns/c1" }); // greet: hello, c1
 * ```
 */
export class Runtime {
  readonly #options: RuntimeOptions;

  /** Opens, reads and starts nothing yet. */
  constructor(options: RuntimeOptions) {
    this.#options = options;
  }

  /**
   * Attaches a container (ADD). Removes a stale attachment of the same name first.
   *
   * @returns the last plugin's result in the newest form; {@linkcode formatResult} converts it
   * @throws {CniError} a plugin's error; code 4 if it is attached or has such an interface; code 8 without the
   * namespace
   */
  add(network: NetworkConfigList, parameters: AddRuntimeConf): Result {
    return this.#withContext((runtime) => addNetworkList(runtime, network, parameters));
  }

  /**
   * Asks whether a container is still attached as it was (CHECK).
   *
   * @throws {CniError} what a plugin found; code 1 if the version has no CHECK; code 3 without a result
   */
  check(network: NetworkConfigList | string, parameters: RuntimeConf): void {
    this.#withContext((runtime) => checkNetworkList(runtime, network, parameters));
  }

  /**
   * Detaches a container (DEL) with the configuration of its ADD; succeeds if it is detached already.
   *
   * @param network its configuration, or its name if that is gone
   * @throws {CniError} a plugin's error, or code 7 without a configuration
   */
  del(network: NetworkConfigList | string, parameters: RuntimeConf): void {
    this.#withContext((runtime) => delNetworkList(runtime, network, parameters));
  }

  /**
   * Detaches all but `valid`, and has the plugins remove what is left (GC). No other command runs meanwhile.
   *
   * @returns what was detached
   * @throws {UnknownAttachmentError} before any change, if `resolveNames` finds an unknown name
   * @throws {CniError} naming all failures, after everything was tried
   */
  gc(
    network: NetworkConfigList,
    valid: readonly Attachment[],
    { snapshotTime = nowCeil(), resolveNames = false, ignoreUnknown = false, progress }: GcOptions = {},
  ): Attachment[] {
    return this.#withContext((runtime) => {
      const attachments = resolveNames
        ? resolveValidAttachments(runtime, network, valid, { snapshotTime, ignoreUnknown })
        : valid;
      return gcNetworkList(runtime, network, attachments, snapshotTime, progress);
    });
  }

  /** Asks whether the plugins could serve an ADD (STATUS). @throws {CniError} code 50 or 51 if not */
  status(network: NetworkConfigList): void {
    this.#withContext((runtime) => getNetworkListStatus(runtime, network));
  }

  /**
   * Puts back rules that were taken away, as by `nft flush ruleset`. A failure stops nothing else.
   *
   * @param network its configuration or name; default: all
   * @param progress told after each attachment that `done` of `total` are done
   * @throws {SystemError} if the cache cannot be read
   */
  restore(network?: NetworkConfigList | string, progress?: (done: number, total: number) => void): RestoreReport {
    return this.#withContext((runtime) => restoreAttachments(runtime, network, { progress }));
  }

  /** Lists attachments to a network, or all; damaged files are logged and left out. */
  attachments(network?: string): NetworkAttachment[] {
    return this.#withContext(({ cacheDirectory, hostContext, log }) =>
      listAttachments(cacheDirectory, hostContext, network, log)
    );
  }

  /** The configuration that ADD had, for CHECK and DEL; `undefined` if unreadable. */
  attachedConfiguration(network: string, { containerId, ifname }: Attachment): string | undefined {
    const { cacheDirectory = DEFAULT_CACHE_DIRECTORY } = this.#options;
    const key = { network, containerId, ifname };
    try {
      return hasCacheFile(cacheDirectory, key) && findEntry(cacheDirectory, key)?.config || undefined;
    } catch {
      // The command that needs it says why.
      return undefined;
    }
  }

  /** Describes keys that nobody reads. Of programs, only some keys are known. */
  unknownKeys(network: NetworkConfigList): string[] {
    return findUnknownKeys(network, ...this.#pluginFinders());
  }

  /** Describes arguments for capabilities that no plugin declares, and unknown keys in arguments. */
  unknownCapabilities(network: NetworkConfigList, capabilityArgs: JsonObject): string[] {
    return findUnknownCapabilities(network, capabilityArgs, ...this.#pluginFinders());
  }

  #pluginFinders() {
    const { plugins = [], pluginDirectories = DEFAULT_PLUGIN_DIRECTORIES } = this.#options;
    const findOwnPlugin = (type: string) => plugins.find(({ name }) => name === type);
    return [
      (type: string) => (findOwnPlugin(type) ?? findPlugin(type))?.config,
      (type: string) => !findOwnPlugin(type) && findPluginProgram(type, pluginDirectories) !== undefined,
    ] as const;
  }

  /** Derives what each plugin would read from stdin. @throws {CniError} as the command before its first call */
  deriveRequests(network: NetworkConfigList | string, options: DeriveOptions): DerivedRequest[] {
    return this.#withContext((runtime) => deriveRequests(runtime, network, options));
  }

  #withContext<T>(call: (runtime: RuntimeContext) => T): T {
    return withRuntimeContext(this.#options, call);
  }
}

/** Holds the host's namespace only during a call: a runtime needs no disposal. */
export function withRuntimeContext<T>(options: RuntimeOptions, call: (runtime: RuntimeContext) => T): T {
  const { pluginDirectories = DEFAULT_PLUGIN_DIRECTORIES, cacheDirectory = DEFAULT_CACHE_DIRECTORY } = options;
  const { env, findCallerPid, rollback = true, log = printStderr, pluginLog = log } = options;
  const hostContext = createHostContext({ ...options, cacheDirectory, log: pluginLog });
  using _ = hostContext.host;
  return call({
    hostContext,
    pluginDirectories,
    cacheDirectory,
    env: inheritedEnvironment(env),
    ...findCallerPid !== undefined && { findCallerPid },
    rollback,
    cachedLists: new Map(),
    restoreConfigs: new Map(),
    log,
  });
}
