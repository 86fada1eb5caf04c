/**
 * How a plugin documents its configuration: `docs.ts` beside `plugin.ts`, which no call of a plugin loads.
 *
 * `scripts/docs` makes docs/plugins/NAME.md, docs/parity.md and the README's table of plugins from it.
 *
 * @module
 */
import type { JsonObject } from "../../../spec/schema.ts";

export interface KeyDocs {
  /** In words: `list of objects`. A test tries `boolean`, `number of bytes, 0 to 65535` and `"l2" or "l3"`. */
  readonly type: string;
  /** What counts where the key is absent: words, or JSON, which a test tries. Absent where the plugin needs the key. */
  readonly default?: string;
  /** One or two sentences about what the key does. */
  readonly meaning: string;
  /** A value, as JSON has it. Examples of an object's keys fit into the object's own. */
  readonly example?: unknown;
  /** The version of `cni` that first read it; 0.1.0 unless told. */
  readonly since?: string;
  /** Why nobody should use the key any more: what to do instead. `cni lint` says it. */
  readonly deprecated?: string;
  /** What is different from the Go plugin of that name, in a few words; nothing unless told. */
  readonly parity?: string;
  /** Tests that speak of it, by their names in the plugin's folder. */
  readonly tests: readonly string[];
}

export interface PluginDocs {
  /** The plugin's object in a network's configuration, complete and usable. */
  readonly example: JsonObject;
  /** By path: `mtu`, `vlanTrunk[].id`, `ipam.ranges[][].subnet`, `runtimeConfig.mac`, `CNI_ARGS MAC`. */
  readonly keys: Readonly<Record<string, KeyDocs>>;
  /** Keys of the Go plugin that this one does not read, each with the reason. */
  readonly absent?: Readonly<Record<string, string>>;
  /** What is different from the Go plugin on purpose: a sentence or a few each, in Markdown. */
  readonly differences: readonly string[];
}
