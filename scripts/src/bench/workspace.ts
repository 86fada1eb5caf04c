/** Where a run of the benchmark keeps its things, and what it was told. @module */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ROOT } from "../repository.ts";
import { must } from "./process.ts";

/** The reference plugins, where Debian's package puts them. */
export const REFERENCE = "/usr/lib/cni";

/** What every row needs. */
export interface Bench extends Disposable {
  /** A directory of this run, on the disk where temporary files are. */
  readonly state: string;
  /** The compiled program. */
  readonly cni: string;
  /** Links to it, as `cni install` makes them. */
  readonly plugins: string;
  /** An empty program, compiled as ours is. */
  readonly empty: string;
  /** Rounds per row. */
  readonly rounds: number;
  /** Smaller sizes, to see that everything works. */
  readonly quick: boolean;
  /** Says on stderr what goes on. */
  say(text: string): void;
}

/** Compiles the empty program and installs ours. */
export function prepare(options: Pick<Bench, "rounds" | "quick" | "say">): Bench {
  const state = mkdtempSync(join(tmpdir(), "cni-bench-"));
  const cni = join(ROOT, "dist/cni");
  const empty = join(state, "empty");
  const plugins = join(state, "bin");
  mkdirSync(plugins);
  must({ argv: [cni, "install", plugins] });
  const entry = join(ROOT, "scripts/src/bench/empty.ts");
  must({ argv: [process.execPath, join(ROOT, "scripts/src/build/main.ts"), `--entry=${entry}`, `--outfile=${empty}`] });
  return {
    ...options,
    state,
    cni,
    plugins,
    empty,
    [Symbol.dispose]: () => rmSync(state, { recursive: true, force: true }),
  };
}
