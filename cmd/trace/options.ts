import type { CliContext } from "../../program/start.ts";
import type { OptionSpec, ParsedOptions } from "../options.ts";
import { UsageError } from "../../program/usage_error.ts";

const FORMATS = ["text", "chrome"] as const;
type TraceFormat = typeof FORMATS[number];

const TRACE = "trace", TRACE_FILE = "trace-file", TRACE_FORMAT = "trace-format", TIMING = "timing";

/** For every command that calls plugins. */
export const TRACE_OPTIONS: readonly OptionSpec[] = [
  { name: TRACE, help: "print on stderr what the command did, and when" },
  {
    name: TRACE_FILE,
    value: "PATH",
    env: "CNI_TRACE",
    help: 'write the same to a file; "stderr" names standard error',
  },
  {
    ...{ name: TRACE_FORMAT, value: "FORMAT", choices: FORMATS, env: "CNI_TRACE_FORMAT" },
    help: `format of a trace: text, or chrome for trace viewers (text)`,
  },
  { name: TIMING, help: "print on stderr how long each plugin and kind of work took" },
];

/** Where a trace goes. */
export interface TraceRequest {
  /** `undefined` for no trace, only its sums. */
  readonly target: "stderr" | { readonly path: string; readonly append: boolean } | undefined;
  readonly format: TraceFormat;
  readonly timing: boolean;
}

/** `undefined` if nobody asks for a trace. Options win over the environment. @throws {UsageError} for a format alone */
export function findTraceRequest(options: ParsedOptions): TraceRequest | undefined {
  const file = options.list(TRACE_FILE).at(-1);
  const timing = options.has(TIMING);
  const target = file !== undefined
    ? toTarget(file, false)
    : options.has(TRACE)
    ? "stderr"
    : toTarget(options.find(TRACE_FILE), true);
  if (target === undefined && options.has(TRACE_FORMAT)) {
    throw new UsageError(`--${TRACE_FORMAT} belongs to --${TRACE} or --${TRACE_FILE}: give one of them too`);
  }
  if (target === undefined && !timing) return undefined;
  return { target, format: toFormat(options.find(TRACE_FORMAT)), timing };
}

/** For a plugin's call, which has no options. */
export function traceRequestOf({ CNI_TRACE, CNI_TRACE_FORMAT }: CliContext["env"]): TraceRequest {
  return { target: toTarget(CNI_TRACE, true), format: toFormat(CNI_TRACE_FORMAT), timing: false };
}

/** @param append an engine's calls share the file of the environment */
function toTarget(text: string | undefined, append: boolean): TraceRequest["target"] {
  return text === undefined || text === "" ? undefined : text === "stderr" ? "stderr" : { path: text, append };
}

/** An unknown format in the environment must not fail a plugin. */
function toFormat(text: string | undefined): TraceFormat {
  return FORMATS.find((format) => format === text?.toLowerCase()) ?? "text";
}
