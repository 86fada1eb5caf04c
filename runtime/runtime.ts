/**
 * The runtime for programs: what `cni run` does, as an object.
 *
 * @module
 */
import type { Attachment } from "../spec/plugin_config.ts";
import type { NetworkList } from "../spec/network_config_list.ts";
import type { Result } from "../spec/result.ts";
import { attach } from "./attach.ts";
import { type KnownAttachment, listAttachments } from "./attachments.ts";
import { type DerivedRequest, type DeriveOptions, deriveRequests } from "./derive.ts";
import { gc } from "./gc.ts";
import type { RecallParameters } from "./resolve_attachment.ts";
import { type Restoration, restore } from "./restore.ts";
import { type AddParameters, check, del, type RuntimeOptions, status } from "./operations.ts";
import { say } from "../ffi/sys/stdio.ts";
import { surroundings, type SurroundingsOptions } from "./host_context.ts";

/** How a {@linkcode Runtime} works; all of it has a default. */
export interface RuntimeSettings extends SurroundingsOptions {
  /** Where plugins of others are, absolute paths: `["/opt/cni/bin"]`. */
  readonly pluginDirectories?: readonly string[];
  /** Where attachments are remembered, in the format of libcni: `/var/lib/cni`. */
  readonly cacheDirectory?: string;
  /** What plugins that are programs inherit: the environment of this process. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Whether a failed ADD is undone at once, as it is unless told; without it the caller owes a {@linkcode Runtime.del}. */
  readonly rollBack?: boolean;
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
 * import { parseNetworkList, plugin, Runtime, schema } from "./mod.ts";
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
 * const network = parseNetworkList(`{ "cniVersion": "1.1.0", "name": "hi", "plugins": [{ "type": "greet" }] }`);
 * runtime.add(network, { containerId: "c1", ifname: "eth0", netns: "/run/netns/c1" }); // greet: hello, c1
 * ```
 */
export class Runtime {
  readonly #settings: RuntimeSettings;

  /** Nothing is opened, read or started before a method is called. */
  constructor(settings: RuntimeSettings = {}) {
    this.#settings = settings;
  }

  /**
   * Attaches a container (ADD). An attachment of the same name that cannot live any more, since its namespace is gone, is removed first.
   *
   * @returns the result of the last plugin, in the current form; {@linkcode formatResult} gives it in the network's version
   * @throws {CniError} code 4 if it is attached already or has such an interface, code 8 without the namespace, or what a plugin failed with
   */
  add(network: NetworkList, parameters: AddParameters): Result {
    return this.#with((options, kernel) => attach(options, network, parameters, kernel));
  }

  /**
   * Asks the plugins whether a container is still attached as it was (CHECK).
   *
   * @throws {CniError} what a plugin found; code 1 if the network's version has no CHECK, code 3 if nothing is known of the attachment
   */
  check(network: NetworkList | string, parameters: RecallParameters): void {
    this.#with((options) => check(options, network, parameters));
  }

  /**
   * Detaches a container (DEL), with the configuration it was attached with; succeeds if it is detached already.
   *
   * @param network its configuration, or its name if that is gone
   * @throws {CniError} what a plugin failed with, or code 7 if no configuration is known
   */
  del(network: NetworkList | string, parameters: RecallParameters): void {
    this.#with((options) => del(options, network, parameters));
  }

  /**
   * Detaches everything from a network but `valid`, and lets the plugins remove what is left (GC). Nobody may attach meanwhile.
   *
   * @throws {CniError} naming everything that failed, after everything was tried
   */
  gc(network: NetworkList, valid: readonly Attachment[]): void {
    this.#with((options) => gc(options, network, valid));
  }

  /** Asks the plugins whether they could serve an ADD (STATUS). @throws {CniError} code 50 or 51 if one could not */
  status(network: NetworkList): void {
    this.#with((options) => status(options, network));
  }

  /**
   * Puts back the rules of attachments that somebody took away, as with `nft flush ruleset`; what is there already is not touched.
   *
   * @param network its configuration or its name; all networks without one
   * @returns what was put back, and what failed, which keeps nothing else from being put back
   * @throws {SystemError} if what is remembered cannot be read
   */
  restore(network?: NetworkList | string): Restoration {
    return this.#with((options, kernel) => restore(options, kernel, network));
  }

  /** What is attached to a network, or to any, as far as it is remembered. @throws {SystemError} */
  attachments(network?: string): KnownAttachment[] {
    return this.#with(({ cacheDirectory }, kernel) => listAttachments(cacheDirectory, kernel, network));
  }

  /** What each plugin would read from stdin for a command, without calling one. @throws {CniError} as the command itself, if it called none */
  requests(network: NetworkList | string, options: DeriveOptions): DerivedRequest[] {
    return this.#with((runtime) => deriveRequests(runtime, network, options));
  }

  /** The namespace of the host is held for the time of a call only, so that nobody has to let go of it. */
  #with<T>(call: (options: RuntimeOptions, kernel: ReturnType<typeof surroundings>) => T): T {
    const { pluginDirectories = ["/opt/cni/bin"], cacheDirectory = "/var/lib/cni", rollBack = true } = this.#settings;
    const { env = process.env, log = say } = this.#settings;
    const around = surroundings(this.#settings);
    using _ = around.host;
    const [invoker, ownPlugins] = [around.invoker(pluginDirectories), around.invoker([])];
    return call({ invoker, ownPlugins, pluginDirectories, cacheDirectory, env, rollBack, log }, around);
  }
}
