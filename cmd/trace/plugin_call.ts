import type { CliContext } from "../../program/start.ts";
import { traceRequestOf } from "./options.ts";
import { runTraced } from "./traced_call.ts";

/** @returns the exit status */
export function tracePlugin(context: CliContext, serve: () => Promise<number>): Promise<number> {
  const name = `${context.programName} ${context.env["CNI_COMMAND"] ?? ""}`.trimEnd();
  return runTraced(name, traceRequestOf(context.env), context, serve);
}
