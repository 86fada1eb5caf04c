/** The programs that are measured. @module */
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { compileEmptyProgram } from "../bench/workspace.ts";
import type { MeasuredPrograms } from "./measure.ts";

/** A tmpfs. On a disk, the kernel maps more or less of a program with one page fault, as its pages came into memory. */
const TMPFS = "/dev/shm";

/** The compiled program `cni`, and an empty one, which is compiled here. */
export function prepareBudget(cni: string): MeasuredPrograms & Disposable {
  const directory = mkdtempSync(join(TMPFS, "cni-budget-"));
  const programs = { cni: join(directory, "cni"), empty: join(directory, "empty") };
  copyFileSync(cni, programs.cni);
  compileEmptyProgram(programs.empty);
  return { ...programs, [Symbol.dispose]: () => rmSync(directory, { recursive: true, force: true }) };
}
