import { readTail } from "./file.ts";

/** The build ends the program and the shim with it, to mark copies of every version. Never change it. */
export const PROGRAM_MARK = "\ncni: the runtime and the plugins of container networks in one program\n";

export function hasProgramMark(path: string): boolean {
  const mark = new TextEncoder().encode(PROGRAM_MARK);
  return Buffer.from(readTail(path, mark.length)).equals(mark);
}
