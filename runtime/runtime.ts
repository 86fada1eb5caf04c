/**
 * The runtime for programs: what `cni run` does, as an object.
 *
 * @module
 */
import type { Attachment } from "../spec/plugin_config.ts";
import type { NetworkConfigList } from "../spec/network_config_list.ts";
import type { Result } from "../spec/result.ts";
import { attachContainer } from "./attach.ts";
import { listAttachments, type NetworkAttachment } from "./attachments.ts";
import { type DerivedRequest, type DeriveOptions, deriveRequests } from "./derive.ts";
import { gcNetworkList } from "./gc.ts";
import type { RuntimeConf } from "./resolve_attachment.ts";
import { restoreAttachments, type RestoreReport } from "./restore.ts";
import {
  type AddRuntimeConf,
  checkNetworkList,
  delNetworkList,
  getNetworkListStatus,
  type RuntimeContext,
} from "./operations.ts";
import { printStderr } from "../ffi/sys/stdio.ts";
import { createHostContext, type HostContextOptions } from "./host_context.ts";

/** How a {@linkcode Runtime} works; all of it has a default. */
export interface RuntimeOptions extends HostContextOptions {
  /** Where plugins of others are, absolute paths: `["/opt/cni/bin"]`. */
  readonly pluginDirectories?: readonly string[];
  /** Where attachments are remembered, in the format of libcni: `/var/lib/cni`. */
  readonly cacheDirectory?: string;
  /** What plugins that are programs inherit: the environment of this process. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Whether a failed ADD is undone at once, as it is unless told; without it the caller owes a {@linkcode Runtime.del}. */
  readonly rollback?: boolean;
}

/**
 * Attaches containers to networks, and remembers it.
 *
 * Every method waits for the plugins, and fails with a {@linkcode CniError} that has the code of the plugin that failed. Plugins run in
 * the network namespace that the calling thread is in.
 *
 * @example Attach a container, look after it, detach it
 * ```ts
 * import { loadNetwork, Runtime } from "./mod.ts";
 *
 * const runtime = new Runtime({ cacheDirectory: "/var/lib/cni" });
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
 * const runtime = new Runtime({ log: () => {} });
 * runtime.add(loadNetwork("default"), { containerId: "c1", ifname: "eth0", netns: "/run/netns/c1" });
 * Bun.spawnSync(["nft", "delete table inet cni"]);
 * for (const { containerId, state, plugins } of runtime.restore("default").attachments) {
 *   console.log(`${containerId} ${state}: ${plugins[0]?.restored[0]}`); // c1 restored: masquerading of 10.63.0.2
 * }
 * console.log(runtime.restore("default").attachments[0]?.state); // whole
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
 * const runtime = new Runtime({ plugins: [greet], log: console.log });
 * const network = parseNetworkConfigList(`{ "cniVersion": "1.1.0", "name": "hi", "plugins": [{ "type": "greet" }] }`);
 * runtime.add(network, { containerId: "c1", ifname: "eth0", netns: "/run/netns/c1" }); // greet: hello, c1
 * ```
 */
export class Runtime {
  readonly #options: RuntimeOptions;

  /** Nothing is opened, read or started before a method is called. */
  constructor(options: RuntimeOptions = {}) {
    this.#options = options;
  }

  /**
   * Attaches a container (ADD). An attachment of the same name that cannot live any more, since its namespace is gone, is removed first.
   *
   * @returns the result of the last plugin, in the current form; {@linkcode formatResult} gives it in the network's version
   * @throws {CniError} code 4 if it is attached already or has such an interface, code 8 without the namespace, or what a plugin failed with
   */
  add(network: NetworkConfigList, parameters: AddRuntimeConf): Result {
    return this.#withContext((options, context) => attachContainer(options, network, parameters, context));
  }

  /**
   * Asks the plugins whether a container is still attached as it was (CHECK).
   *
   * @throws {CniError} what a plugin found; code 1 if the network's version has no CHECK, code 3 if nothing is known of the attachment
   */
  check(network: NetworkConfigList | string, parameters: RuntimeConf): void {
    this.#withContext((options) => checkNetworkList(options, network, parameters));
  }

  /**
   * Detaches a container (DEL), with the configuration it was attached with; succeeds if it is detached already.
   *
   * @param network its configuration, or its name if that is gone
   * @throws {CniError} what a plugin failed with, or code 7 if no configuration is known
   */
  del(network: NetworkConfigList | string, parameters: RuntimeConf): void {
    this.#withContext((options) => delNetworkList(options, network, parameters));
  }

  /**
   * Detaches everything from a network but `valid`, and lets the plugins remove what is left (GC). Nobody may attach meanwhile.
   *
   * @throws {CniError} naming everything that failed, after everything was tried
   */
  gc(network: NetworkConfigList, valid: readonly Attachment[]): void {
    this.#withContext((options) => gcNetworkList(options, network, valid));
  }

  /** Asks the plugins whether they could serve an ADD (STATUS). @throws {CniError} code 50 or 51 if one could not */
  status(network: NetworkConfigList): void {
    this.#withContext((options) => getNetworkListStatus(options, network));
  }

  /**
   * Puts back the rules of attachments that somebody took away, as with `nft flush ruleset`; what is there already is not touched.
   *
   * @param network its configuration or its name; all networks without one
   * @returns what was put back, and what failed, which keeps nothing else from being put back
   * @throws {SystemError} if what is remembered cannot be read
   */
  restore(network?: NetworkConfigList | string): RestoreReport {
    return this.#withContext((options, context) => restoreAttachments(options, context, network));
  }

  /** What is attached to a network, or to any, as far as it is remembered. @throws {SystemError} */
  attachments(network?: string): NetworkAttachment[] {
    return this.#withContext(({ cacheDirectory }, context) => listAttachments(cacheDirectory, context, network));
  }

  /** What each plugin would read from stdin for a command, without calling one. @throws {CniError} as the command itself, if it called none */
  deriveRequests(network: NetworkConfigList | string, options: DeriveOptions): DerivedRequest[] {
    return this.#withContext((runtime) => deriveRequests(runtime, network, options));
  }

  /** The namespace of the host is held for the time of a call only, so that nobody has to let go of it. */
  #withContext<T>(call: (options: RuntimeContext, context: ReturnType<typeof createHostContext>) => T): T {
    const { pluginDirectories = ["/opt/cni/bin"], cacheDirectory = "/var/lib/cni", rollback = true } = this.#options;
    const { env = process.env, log = printStderr } = this.#options;
    const context = createHostContext(this.#options);
    using _ = context.host;
    const [invoker, builtInPlugins] = [context.invoker(pluginDirectories), context.invoker([])];
    return call({ invoker, builtInPlugins, pluginDirectories, cacheDirectory, env, rollback, log }, context);
  }
}
