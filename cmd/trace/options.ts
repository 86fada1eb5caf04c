import type { CliContext } from "../../program/start.ts";
import type { OptionSpec, ParsedOptions } from "../options.ts";
import { UsageError } from "../../program/usage_error.ts";

const FORMATS = ["text", "chrome"] as const;
type TraceFormat = typeof FORMATS[number];

const TRACE = "trace";
const TRACE_FILE = "trace-file";
const TRACE_FORMAT = "trace-format";
const TIMING = "timing";

export const TRACE_OPTIONS: readonly OptionSpec[] = [
  { name: TRACE, help: "print on stderr what the command did, and when" },
  {
    name: TRACE_FILE,
    value: "PATH",
    env: "CNI_TRACE",
    help: 'write the same to a file; "stderr" names standard error',
  },
  {
    name: TRACE_FORMAT,
    value: "FORMAT",
    choices: FORMATS,
    env: "CNI_TRACE_FORMAT",
    help: `format of a trace: text, or chrome for trace viewers (text)`,
  },
  { name: TIMING, help: "print on stderr how long each plugin and kind of work took" },
];

export interface TraceRequest {
  /** Without one, only the sums are shown. */
  readonly target: "stderr" | { readonly path: string; readonly append: boolean } | undefined;
  readonly format: TraceFormat;
  readonly timing: boolean;
}

/** Options win over the environment. @throws {UsageError} for a format alone */
export function findTraceRequest(options: ParsedOptions): TraceRequest | undefined {
  const timing = options.has(TIMING);
  const target = findTarget(options);
  if (target === undefined && options.has(TRACE_FORMAT)) {
    throw new UsageError(`--${TRACE_FORMAT} belongs to --${TRACE} or --${TRACE_FILE}: give one of them too`);
  }
  if (target === undefined && !timing) return undefined;
  return { target, format: toFormat(options.find(TRACE_FORMAT)), timing };
}

function findTarget(options: ParsedOptions): TraceRequest["target"] {
  const file = options.list(TRACE_FILE).at(-1);
  if (file !== undefined) return toTarget(file, false);
  return options.has(TRACE) ? "stderr" : toTarget(options.find(TRACE_FILE), true);
}

/** A plugin's call has no options. */
export function traceRequestOf({ CNI_TRACE, CNI_TRACE_FORMAT }: CliContext["env"]): TraceRequest {
  return { target: toTarget(CNI_TRACE, true), format: toFormat(CNI_TRACE_FORMAT), timing: false };
}

/** @param append an engine's calls share the file of the environment */
function toTarget(text: string | undefined, append: boolean): TraceRequest["target"] {
  if (text === undefined || text === "") return undefined;
  return text === "stderr" ? "stderr" : { path: text, append };
}

/** An unknown format in the environment must not fail a plugin. */
function toFormat(text: string | undefined): TraceFormat {
  return FORMATS.find((format) => format === text?.toLowerCase()) ?? "text";
}
