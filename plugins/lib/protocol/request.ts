/**
 * One call of one plugin, with types. Text is at process boundaries only: `serve.ts` reads it, `exec.ts` writes it.
 *
 * @see SPEC.md §2 Execution Protocol
 * @module
 */
import type { Parameters } from "../../../spec/env.ts";
import type { PluginConfig } from "../../../spec/plugin_config.ts";
import type { Result } from "../../../spec/result.ts";
import type { CniCommand } from "../../../spec/version.ts";

/**
 * What a plugin can be asked: the commands of the specification but VERSION, which needs no configuration and is answered before there is
 * one; and two for plugins of this process alone: `RESTORE`, which puts back the rules of an attachment that somebody took away, and
 * `DIAGNOSE`, which says what keeps packets from flowing.
 */
export type PluginCommand = Exclude<CniCommand, "VERSION"> | "RESTORE" | "DIAGNOSE";

/** A call of a plugin. */
export interface PluginRequest extends Parameters {
  /** What is asked. */
  readonly command: PluginCommand;
  /** With `prevResult`: of DEL, CHECK and RESTORE what the whole ADD did. */
  readonly config: PluginConfig;
  /** The caller's environment: what programs that are started inherit, and where services of the host are. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Finds the process that made the call, where that can be known; it may be the container's engine. */
  readonly findCallerPid?: () => number;
  /** Of DEL: it undoes an ADD that failed, whose error says already what cannot be used of the configuration. */
  readonly undoesAdd?: true;
  /** For GC: when the list of valid attachments was made, at the latest, in nanoseconds since 1970; now unless told. */
  readonly snapshotTime?: bigint;
}

/** DELs of attachments to one network, with one configuration, to be carried out together. */
export interface DelBatchRequest {
  /** Tells it from a single request. */
  readonly command: "DEL_BATCH";
  /** The single DELs. */
  readonly requests: readonly PluginRequest[];
}

/** What comes of a call. */
export interface PluginResponse {
  /** Of ADD. */
  readonly result?: Result;
  /** Of ADD by a program: the version it answered in. */
  readonly resultVersion?: unknown;
  /** Of RESTORE: what was missing, in words; absent if the plugin is a program, which cannot be asked. */
  readonly restored?: readonly string[];
  /** Of DIAGNOSE: what is wrong, in sentences. */
  readonly problems?: readonly string[];
  /** Of a batch: what is still to be carried out, each by itself; all of it if the plugin is a program. */
  readonly remaining?: readonly PluginRequest[];
}
