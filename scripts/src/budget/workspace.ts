/** The programs that are measured. @module */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { compileEmptyProgram } from "../bench/workspace.ts";
import type { MeasuredPrograms } from "./measure.ts";

/** The compiled program `cni`, and an empty one, which is compiled here. */
export function prepareBudget(cni: string): MeasuredPrograms & Disposable {
  const directory = mkdtempSync(join(tmpdir(), "cni-budget-"));
  const empty = join(directory, "empty");
  compileEmptyProgram(empty);
  return { cni, empty, [Symbol.dispose]: () => rmSync(directory, { recursive: true, force: true }) };
}
