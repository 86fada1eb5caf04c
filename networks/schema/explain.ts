/** What docs.ts says of a plugin and its keys. `loadPlugins()` and `loadPluginDocs()` come first. @module */
import { builtinDocs } from "../../plugins/docs_registry.ts";
import { commonKeys } from "../../plugins/lib/docs/common_docs.ts";
import type { KeyDocs } from "../../plugins/lib/docs/plugin_docs.ts";
import { findPlugin, pluginNames } from "../../plugins/registry.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { JsonObject } from "../../spec/schema.ts";
import { suggestion } from "../../spec/suggest.ts";
import { findProgram } from "../lint/written_plugin.ts";

export interface ExplainedKey {
  /** `ipam.ranges[][].subnet`; `CNI_ARGS MAC` for an argument. */
  readonly key: string;
  readonly type: string;
  /** What counts where it is absent: JSON or words. Absent if the key is required. */
  readonly default?: string;
  readonly meaning: string;
  readonly example?: unknown;
  readonly deprecated?: string;
  /** What is different from the Go plugin. */
  readonly parity?: string;
  /** The version of this program that first read it; absent for 0.1.0. */
  readonly since?: string;
}

export interface ExplainedPlugin {
  readonly plugin: string;
  readonly about: string;
  readonly example: JsonObject;
  readonly keys: readonly ExplainedKey[];
}

/** @throws {CniError} code 7 if it is not built in */
export function explainPlugin(name: string, pluginDirectories: readonly string[] = []): ExplainedPlugin {
  const definition = findPlugin(name) ?? refuseKeyAlone(name) ?? requireBuiltin(name, pluginDirectories);
  const { example, keys } = builtinDocs(name)!;
  return { plugin: name, about: definition.about, example, keys: Object.entries(keys).map(toExplainedKey) };
}

/**
 * A key with the keys inside it, also one that every plugin has.
 *
 * @param key in any case, with or without `[]` and indexes: `ipam.ranges[0].subnet`
 * @throws {CniError} code 7 if the plugin does not read it
 */
export function explainKey(
  name: string,
  key: string,
  pluginDirectories: readonly string[] = [],
): readonly ExplainedKey[] {
  requireBuiltin(name, pluginDirectories);
  const keys = { ...commonKeys, ...builtinDocs(name)!.keys };
  const wanted = comparable(key);
  const found = Object.entries(keys).filter(([path]) => {
    const candidate = comparable(path);
    return candidate === wanted || candidate.startsWith(`${wanted}.`);
  });
  if (found.length > 0) return found.map(toExplainedKey);
  const owners = pathsOf(key);
  throw new CniError(Code.InvalidConfig, `Plugin "${name}" has no key ${JSON.stringify(key)}${hintFor(key, keys)}`, {
    details: `${owners.length === 0 ? "" : `${describeOwners(owners)}; `}"cni explain ${name}" lists its keys`,
  });
}

/** People leave out the objects around a key: `ranges`. */
function hintFor(key: string, keys: Readonly<Record<string, KeyDocs>>): string {
  const paths = Object.keys(keys).map(withoutLists);
  const [inner] = paths.filter((path) => comparable(path).endsWith(`.${comparable(key)}`))
    .sort((a, b) => a.length - b.length);
  return inner === undefined ? suggestion(key, paths) : `; did you mean "${inner}"?`;
}

function pathsOf(wanted: string): string[] {
  return pluginNames().flatMap((plugin) => {
    const { keys } = builtinDocs(plugin) ?? { keys: {} };
    return Object.keys(keys).filter((key) => comparable(key) === comparable(wanted)).map((key) => `${plugin}.${key}`);
  });
}

const describeOwners = (paths: readonly string[]): string => `it is a key of plugins: ${paths.join(", ")}`;

function refuseKeyAlone(name: string): undefined {
  const paths = pathsOf(name);
  if (paths.length === 0) return;
  throw new CniError(Code.InvalidConfig, `No plugin ${JSON.stringify(name)} is built in`, {
    details: describeOwners(paths),
  });
}

export function requireBuiltin(name: string, pluginDirectories: readonly string[] = []) {
  const definition = findPlugin(name);
  if (definition) return definition;
  const program = findProgram(name, pluginDirectories);
  if (program !== undefined) {
    throw new CniError(Code.InvalidConfig, `Plugin ${JSON.stringify(name)} is another program, "${program}"`, {
      details: "only its own documentation tells its keys",
    });
  }
  const hint = suggestion(name, pluginNames()) || `; there are ${pluginNames().join(", ")}`;
  throw new CniError(Code.InvalidConfig, `No plugin ${JSON.stringify(name)} is built in${hint}`);
}

const withoutLists = (path: string): string => path.replace(/\[[0-9]*\]/g, "");
const comparable = (path: string): string => withoutLists(path).toLowerCase().replace(/^cni_args /, "cni_args.");

function toExplainedKey([key, { tests: _, ...docs }]: [string, KeyDocs]): ExplainedKey {
  return { key, ...docs };
}
