/** A typed call of a plugin. At process boundaries, `exec.ts` writes it as text and `serve.ts` reads it. @module */
import type { Parameters } from "../../../spec/env.ts";
import type { PluginConfig } from "../../../spec/plugin_config.ts";
import type { Result } from "../../../spec/result.ts";
import type { CniCommand } from "../../../spec/version.ts";

/**
 * The specification's commands, except VERSION, and two for built-in plugins. `RESTORE` restores removed rules of an
 * attachment, `DIAGNOSE` reports what stops packets.
 */
export type PluginCommand = Exclude<CniCommand, "VERSION"> | "RESTORE" | "DIAGNOSE";

/** A call of a plugin. */
export interface PluginRequest extends Parameters {
  /** What the plugin is to do. */
  readonly command: PluginCommand;
  /** For DEL, CHECK and RESTORE, its `prevResult` is that of the whole ADD. */
  readonly config: PluginConfig;
  /** The caller's; programs inherit it. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Finds the calling process, which may be the container's engine. */
  readonly findCallerPid?: () => number;
  /** DEL undoes a failed ADD, whose error has named unusable keys already. */
  readonly undoesAdd?: true;
  /** For GC: when the list of valid attachments was made at the latest, in nanoseconds since 1970; now by default. */
  readonly snapshotTime?: bigint;
}

/** DELs of one network and configuration as one call. */
export interface DelBatchRequest {
  /** Tells a batch from a single request. */
  readonly command: "DEL_BATCH";
  /** The requests of the batch, which are all DELs. */
  readonly requests: readonly PluginRequest[];
}

/** The outcome of a call. */
export interface PluginResponse {
  /** What ADD returns: `prevResult` with the plugin's additions. */
  readonly result?: Result;
  /** Of ADD by a program: its answer's version. */
  readonly resultVersion?: unknown;
  /** Of RESTORE: what was missing, as text; absent for programs. */
  readonly restored?: readonly string[];
  /** Of DIAGNOSE: one sentence for each problem. */
  readonly problems?: readonly string[];
  /** Of a batch: requests that still need a call each; for a program, all. */
  readonly remaining?: readonly PluginRequest[];
}
