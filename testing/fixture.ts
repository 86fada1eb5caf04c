/**
 * The type of what `plugins/NAME/fixture.ts` exports by default, which says what the suites that run over every plugin need to know of one: conformance,
 * bad input, cost budget, and the lane in the virtual machine. Only tests load fixtures.
 *
 * @module
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import type { JsonDocument } from "./json_document.ts";
import { hasPlugin, pluginNames } from "../plugins/registry.ts";

/** A host with a container, on which a suite calls the plugin. */
export interface FixtureNode {
  readonly host: Netns;
  readonly container: Netns;
  /** For state; removed after the test. */
  readonly directory: string;
  /** Ends something after the test. */
  defer(end: () => void): void;
}

/** The calls that have a cost budget. */
export interface TypicalUse {
  /**
   * The configuration of most installations. The host has two pairs of veth devices which are up: `wire0` with `wire1`, `device0` with
   * `device1`.
   *
   * @param stateDirectory for state; removed after the measurement
   */
  config(stateDirectory: string): JsonDocument;
  /** Whether the plugin is called behind a bridge, with its result as `prevResult`. */
  readonly isChained?: true;
  /** Starts the server that the calls need, on the host of the calls. */
  serve?(host: Netns, stateDirectory: string): Disposable;
  /** Whether ADD waits for other programs, which would be counted too: then only VERSION and STATUS have a budget. */
  readonly needsOthers?: true;
}

/** An effect of a plugin that the kernel shows. Before ADD and after DEL, `observe` gives the same, and not `attached`. */
export interface KernelEffect {
  /** Tells the effects of a plugin apart: `with vlan`. */
  readonly name?: string;
  /** Keys beside or instead of those of {@linkcode PluginFixture.working}. */
  readonly config?: object;
  /** Lines of the shell that prepare the host. */
  readonly host?: readonly string[];
  /** Looks at the kernel, or at files below `root`, which is where the plugin's own file system is. */
  observe(node: FixtureNode, root: string): unknown;
  /** The value of `observe` while the container is attached. */
  readonly attached: unknown;
}

/** Facts about a plugin that the suites need. */
export interface PluginFixture {
  /** The kind of link without which the kernel has nothing to attach, such as `vlan`; without it, only the virtual machine runs all. */
  readonly linkKind?: string;
  /** CNI_IFNAME; `eth0` unless told. */
  readonly ifname?: string;
  /** Whether a server outside shares files with the plugin, wherever the plugin's own file system is. */
  readonly sharesDirectory?: true;
  /** How the cost budget calls it. */
  readonly typical: TypicalUse;
  /**
   * Makes what has to be there before an ADD, and gives a configuration with which the plugin does all that it is for, with
   * `prevResult` if it needs one. Nothing of what it makes may change by itself afterwards: what is there before and after is compared.
   */
  working(node: FixtureNode): JsonDocument;
  /**
   * What is wrong in keys of the plugin's own, each to be refused with code 7: keys that replace those of the working configuration.
   * Those of an object `ipam` replace those of the working one's `ipam`.
   */
  readonly invalid: readonly object[];
  /** Empty for a plugin that only answers. */
  readonly effects: readonly KernelEffect[];
}

const PLUGIN_DIRECTORY = join(import.meta.dir, "../plugins");

/** The fixtures of all plugins, by name. @throws {Error} naming the plugins that have none */
export async function loadFixtures(): Promise<Readonly<Record<string, PluginFixture>>> {
  const files = pluginNames().map((name) =>
    [name, join(PLUGIN_DIRECTORY, name.replaceAll("-", "_"), "fixture.ts")] as const
  );
  const missing = files.filter(([, file]) => !existsSync(file)).map(([, file]) => file);
  if (missing.length > 0) {
    throw new Error(
      `Every plugin needs a fixture, which says how to test it (see testing/fixture.ts): add ${missing.join(", ")}`,
    );
  }
  const loaded = files.map(async ([name, file]) => [name, (await import(file)).default as PluginFixture] as const);
  return Object.fromEntries(await Promise.all(loaded));
}

/**
 * The names of the plugins that the suites run over: all, or those that TEST_PLUGINS names, with commas between them.
 *
 * @throws {RangeError} if one of them is unknown
 */
export function testedPlugins(): readonly string[] {
  const names = process.env.TEST_PLUGINS?.split(",") ?? pluginNames();
  const unknown = names.filter((name) => !hasPlugin(name));
  if (unknown.length > 0) throw new RangeError(`Cannot test "${unknown.join()}": TEST_PLUGINS names what is no plugin`);
  return names;
}
