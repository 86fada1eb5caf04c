/** Where a run of the benchmark keeps its things, and what it was told. @module */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../repository.ts";
import { runSuccessfully } from "./process.ts";

/** The reference plugins, where Debian's package puts them. */
export const REFERENCE_DIRECTORY = "/usr/lib/cni";

/** What every row needs. */
export interface BenchWorkspace extends Disposable {
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
  log(text: string): void;
}

/** Compiles the empty program and installs ours. */
export function prepareBench(options: Pick<BenchWorkspace, "rounds" | "quick" | "log">): BenchWorkspace {
  const state = mkdtempSync(join(tmpdir(), "cni-bench-"));
  const cni = join(REPOSITORY_ROOT, "dist/cni");
  const empty = join(state, "empty");
  const plugins = join(state, "bin");
  mkdirSync(plugins);
  runSuccessfully({ argv: [cni, "install", plugins] });
  const entry = join(REPOSITORY_ROOT, "scripts/src/bench/empty.ts");
  runSuccessfully({
    argv: [
      process.execPath,
      join(REPOSITORY_ROOT, "scripts/src/build/main.ts"),
      `--entry=${entry}`,
      `--outfile=${empty}`,
    ],
  });
  return {
    ...options,
    state,
    cni,
    plugins,
    empty,
    [Symbol.dispose]: () => rmSync(state, { recursive: true, force: true }),
  };
}
