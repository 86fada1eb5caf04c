/** The directory and the programs of a run of the benchmark. @module */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../repository.ts";
import { execInvocation, type Invocation, runInvocation } from "../harness/invocation.ts";
import { CNI_BINARY } from "../harness/node.ts";
import { runSuccessfully } from "../harness/process.ts";

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
  /** The attachment cache of `cni run`. */
  readonly cache: string;
  /** `cni run`, our plugins one by one, and those of the reference. */
  readonly run: Invocation;
  readonly exec: Invocation;
  readonly reference: Invocation;
  /** An empty program, compiled as ours is. */
  readonly empty: string;
  /** Rounds per row. */
  readonly rounds: number;
  /** Smaller sizes, to see that everything works. */
  readonly quick: boolean;
  /** Prints to stderr. */
  log(text: string): void;
}

/** Compiles an empty program as ours is. */
export function compileEmptyProgram(outfile: string): void {
  const script = (path: string) => join(REPOSITORY_ROOT, "scripts/src", path);
  const options = [`--entry=${script("bench/empty.ts")}`, `--outfile=${outfile}`];
  runSuccessfully({ argv: [process.execPath, script("build/main.ts"), ...options] });
}

/** Compiles the empty program and installs ours. */
export function prepareBench(options: Pick<BenchWorkspace, "rounds" | "quick" | "log">): BenchWorkspace {
  const state = mkdtempSync(join(tmpdir(), "cni-bench-"));
  const cni = CNI_BINARY;
  const empty = join(state, "empty");
  const plugins = join(state, "bin");
  const cache = join(state, "cache");
  mkdirSync(plugins);
  runSuccessfully({ argv: [cni, "install", plugins] });
  compileEmptyProgram(empty);
  return {
    ...options,
    state,
    cni,
    plugins,
    cache,
    run: runInvocation(cni, state, ["--cache-dir", cache, "--plugin-dir", plugins]),
    exec: execInvocation(plugins),
    reference: execInvocation(REFERENCE_DIRECTORY),
    empty,
    [Symbol.dispose]: () => rmSync(state, { recursive: true, force: true }),
  };
}
