/** The programs that are measured. @module */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { must } from "../bench/process.ts";
import { ROOT } from "../repository.ts";
import type { Measured } from "./measure.ts";

/** The compiled program `cni`, and an empty one, which is compiled here. */
export function prepare(cni: string): Measured & Disposable {
  const directory = mkdtempSync(join(tmpdir(), "cni-budget-"));
  const empty = join(directory, "empty");
  const entry = join(ROOT, "scripts/src/bench/empty.ts");
  must({ argv: [process.execPath, join(ROOT, "scripts/src/build/main.ts"), `--entry=${entry}`, `--outfile=${empty}`] });
  return { cni, empty, [Symbol.dispose]: () => rmSync(directory, { recursive: true, force: true }) };
}
