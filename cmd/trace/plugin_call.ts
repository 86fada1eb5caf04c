import { printStderr } from "../../ffi/sys/stdio.ts";
import type { CliContext } from "../command.ts";
import { traceRequestOf } from "./options.ts";
import { runTraced } from "./traced_call.ts";

/** A trace that cannot be written must not fail the call. @returns the exit status */
export async function tracePlugin(context: CliContext, serve: () => Promise<number>): Promise<number> {
  const name = `${context.programName} ${context.env["CNI_COMMAND"] ?? ""}`.trimEnd();
  let hasStarted = false;
  try {
    return await runTraced(name, traceRequestOf(context.env), context, () => {
      hasStarted = true;
      return serve();
    });
  } catch (error) {
    if (hasStarted || !(error instanceof Error)) throw error;
    printStderr(`${name}: No trace (CNI_TRACE): ${error.message}`);
    return await serve();
  }
}
