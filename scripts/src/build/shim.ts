import { PROGRAM_MARK } from "../../../ffi/sys/program_mark.ts";
import { compileNative } from "./native_code.ts";
import type { Processor } from "./runtime_patch.ts";

export const SHIM_SOURCE = "server/shim/shim.c";

/** The shim for a processor, with the mark of the program. */
export function compileShim(processor: Processor): Buffer {
  return Buffer.concat([compileNative(processor, SHIM_SOURCE), Buffer.from(PROGRAM_MARK)]);
}
