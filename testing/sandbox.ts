/**
 * A host and containers for tests of plugins: throw-away namespaces, a directory for state, and the way every plugin is really called.
 *
 * @module
 */
import { test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createNetns, type Netns, openNetns } from "../ffi/netns.ts";
import { type Namespaces, newNamespaces } from "./netns.ts";
import { parsePluginResult } from "../plugins/lib/protocol/response.ts";
import { CniError } from "../spec/error.ts";
import type { Result } from "../spec/result.ts";
import type { CniCommand, Version } from "../spec/version.ts";
import type { PluginRequest } from "../plugins/lib/protocol/delegate.ts";
import {
  type AnyPlugin,
  builtinInvoker,
  type HostContext,
  restoreRules,
  serve,
} from "../plugins/lib/protocol/serve.ts";

/** Who is to be attached. */
export interface SandboxCallOptions {
  readonly containerId?: string;
  readonly ifname?: string;
  /** The container's namespace; that of the sandbox unless told, none if `null`. */
  readonly netns?: Netns | string | null;
  /** Other CNI_* variables. */
  readonly env?: Readonly<Record<string, string>>;
}

/** A host with one container, and the means to call plugins there. */
export interface Sandbox extends Namespaces {
  /** A directory of its own, for state files. */
  readonly directory: string;
  /** What plugins said on stderr. */
  readonly log: readonly string[];
  /** Another container, which lives as long as the sandbox. */
  newContainer(): Netns;
  /** Calls a plugin; gives the result of an ADD. @throws {CniError} what the plugin answered with */
  call(plugin: AnyPlugin, verb: CniCommand, config: object, options?: SandboxCallOptions): Result;
  /** Has a plugin put back the rules that are missing. @returns what that was, in words */
  restore(plugin: AnyPlugin, config: object, options?: SandboxCallOptions): readonly string[];
}

/** A sandbox in which plugins may delegate to `plugins`. */
export function newSandbox(plugins: readonly AnyPlugin[]): Sandbox {
  const resources = new DisposableStack();
  const namespaces = resources.use(newNamespaces());
  const directory = mkdtempSync(join(tmpdir(), "cni-test-"));
  resources.defer(() => rmSync(directory, { recursive: true }));
  const log: string[] = [];
  const surroundings: HostContext = {
    host: namespaces.host,
    openNetns,
    invoker: () => builtinInvoker((type) => plugins.find(({ name }) => name === type), surroundings),
    log: (message) => void log.push(message),
  };
  const pathOf = (netns: SandboxCallOptions["netns"]) =>
    netns === null ? "" : typeof netns === "string" ? netns : (netns ?? namespaces.container).path;
  const requestOf = (
    command: CniCommand,
    document: object,
    { containerId = "c1", ifname = "eth0", netns, env = {} }: SandboxCallOptions,
  ): PluginRequest => {
    const variables = {
      CNI_CONTAINERID: containerId,
      CNI_IFNAME: ifname,
      CNI_NETNS: pathOf(netns),
      CNI_PATH: "",
      ...env,
    };
    return { command, env: variables, stdin: JSON.stringify(document) };
  };
  const documentOf = (plugin: AnyPlugin, config: object) => {
    return { cniVersion: "1.1.0", name: "test", type: plugin.name, ...config };
  };
  return {
    ...namespaces,
    directory,
    log,
    newContainer: () => resources.use(createNetns()),
    restore: (plugin, config, options = {}) =>
      restoreRules(plugin, requestOf("ADD", documentOf(plugin, config), options), surroundings),
    call(plugin, verb, config, options = {}) {
      const document = documentOf(plugin, config);
      const { exitCode, stdout } = serve(plugin, requestOf(verb, document, options), surroundings);
      if (exitCode === 0) {
        return verb === "ADD" ? parsePluginResult(stdout, plugin.name, document.cniVersion as Version) : {};
      }
      const { code, msg, details } = JSON.parse(stdout);
      throw new CniError(code, msg, details ? { details } : {});
    },
    [Symbol.dispose]: () => resources.dispose(),
  };
}

/** The configuration with the result of an ADD, as a runtime hands it on. */
export function withPrevResult<C extends object>(config: C, result: Result): C & { readonly prevResult: object } {
  return { ...config, prevResult: { cniVersion: "1.1.0", ...result } };
}

/** A test in a sandbox of its own. */
export function sandboxTest(
  name: string,
  plugins: readonly AnyPlugin[],
  body: (sandbox: Sandbox) => void | Promise<void>,
): void {
  test(name, async () => {
    using sandbox = newSandbox(plugins);
    await body(sandbox);
  });
}
