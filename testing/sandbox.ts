/**
 * A host and containers for tests of plugins: throw-away namespaces, a directory for state, and the way every plugin is really called.
 *
 * @module
 */
import { test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import { type Namespaces, newNamespaces, newNetns } from "./netns.ts";
import { parsePluginResult } from "../plugins/lib/protocol/response.ts";
import type { Result } from "../spec/result.ts";
import type { CniCommand, Version } from "../spec/version.ts";
import type { AnyPlugin } from "../plugins/lib/protocol/context.ts";
import { invokePlugin, newHostContext, newRequest, type RequestParameters, restorePlugin } from "./plugin_call.ts";

/** Parameters of the attachment; in the container of the sandbox unless told. */
export type SandboxCallOptions = Omit<RequestParameters, "snapshotTime">;

/** A host with one container, and the means to call plugins there. */
export interface Sandbox extends Namespaces {
  /** A directory of its own, for state files. */
  readonly directory: string;
  /** The lines that plugins logged. */
  readonly log: readonly string[];
  /** Another container, which lives as long as the sandbox. */
  newContainer(): Netns;
  /** Calls a plugin; gives the result of an ADD. @throws {CniError} what the plugin answered with */
  call(plugin: AnyPlugin, verb: CniCommand, config: object, options?: SandboxCallOptions): Result;
  /** Has a plugin put back the rules that are missing. @returns what that was, in words */
  restore(plugin: AnyPlugin, config: object, options?: SandboxCallOptions): readonly string[];
}

/** Makes a sandbox in which plugins may delegate to `plugins`; namespaces and files go with it. */
export function newSandbox(plugins: readonly AnyPlugin[]): Sandbox {
  const resources = new DisposableStack();
  const namespaces = resources.use(newNamespaces());
  const directory = mkdtempSync(join(tmpdir(), "cni-test-"));
  resources.defer(() => rmSync(directory, { recursive: true }));
  const log: string[] = [];
  const context = newHostContext({
    host: namespaces.host,
    findPlugin: (type) => plugins.find(({ name }) => name === type),
    log,
  });
  const requestOf = (
    plugin: AnyPlugin,
    command: CniCommand,
    config: object,
    { netns = namespaces.container, ...parameters }: SandboxCallOptions,
  ) => newRequest(plugin.name, command, { name: "test", ...config }, { netns, ...parameters });
  return {
    ...namespaces,
    directory,
    log,
    newContainer: () => resources.use(newNetns()),
    restore: (plugin, config, options = {}) =>
      restorePlugin(plugin, requestOf(plugin, "ADD", config, options), context),
    call(plugin, verb, config, options = {}) {
      const document = invokePlugin(plugin, requestOf(plugin, verb, config, options), context);
      if (verb !== "ADD") return {};
      const { cniVersion = "1.1.0" } = config as { readonly cniVersion?: Version };
      return parsePluginResult(JSON.stringify(document), plugin.name, cniVersion);
    },
    [Symbol.dispose]: () => resources.dispose(),
  };
}

/** The configuration with the result of an ADD, as a runtime hands it on. */
export function withPrevResult<C extends object>(config: C, result: Result): C & { readonly prevResult: object } {
  return { ...config, prevResult: { cniVersion: "1.1.0", ...result } };
}

/** Defines a test in a sandbox of its own. @param plugins those that others may delegate to */
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
