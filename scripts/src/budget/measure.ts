import { copyFileSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { join, relative } from "node:path";
import { compileEmptyProgram } from "../bench/workspace.ts";
import { type ProcessResult, requireSuccess, runProcess } from "../harness/process.ts";
import { isProductSource, newScratchDirectory, REPOSITORY_ROOT } from "../repository.ts";
import { chainRounds, type MeasuredCall, pluginRounds } from "./calls.ts";
import { type CallCost, COUNT_STRACE_COMMAND, countTrace } from "./count.ts";

/** A {@linkcode CallCost}, and what no trace tells. */
export interface CostRow extends CallCost {
  /** Minor page faults, of the whole process less those of an empty one. */
  readonly faults: number;
  /** Bytes of the program's code that is loaded, without comments, types, imports and white space. */
  readonly codeBytes: number;
  readonly packages: number;
}

export type CostRows = Readonly<Record<string, Readonly<Record<string, CostRow>>>>;

export type MeasuredPrograms = ReturnType<typeof prepareBudget>;

export function prepareBudget(cni: string) {
  // A tmpfs: on a disk, the kernel maps more or less of a program with one page fault, as its pages came into memory.
  const directory = newScratchDirectory("/dev/shm");
  const programs = { cni: join(directory.path, "cni"), empty: join(directory.path, "empty") };
  copyFileSync(cni, programs.cni);
  compileEmptyProgram(programs.empty);
  return { ...directory, ...programs };
}

/** How often a call is made for its page faults; the least counts, because other processes only add. */
const FAULT_ROUNDS = 2;

export function measureCosts({ cni, empty }: MeasuredPrograms, name: string): CostRows[string] {
  using scope = new DisposableStack();
  const state = scope.use(newScratchDirectory()).path;
  const runRound = name === "cni run" ? chainRounds(scope, state) : pluginRounds(scope, state, name);
  const counts: Record<string, Partial<CostRow>[]> = {};
  const countRound = (way: (call: MeasuredCall) => readonly [string, Partial<CostRow>]) =>
    runRound((verb, call) => {
      const [stdout, row] = way(call);
      (counts[verb] ??= []).push(row);
      return stdout;
    }, (_, call) => startCompiled(cni, state, call).stdout);
  const faultsOfEmpty = Math.min(...Array.from({ length: 5 }, () => runProcess({ argv: [empty] }).faults));
  // The first makes what is made once: the bridge, the table, directories.
  for (let i = 0; i < FAULT_ROUNDS; i++) {
    countRound((call) => {
      const { stdout, faults } = startCompiled(cni, state, call);
      return [stdout, { faults: faults - faultsOfEmpty }];
    });
  }
  countRound((call) => {
    const file = join(state, "trace");
    const { stdout } = startCompiled(cni, state, call, [...COUNT_STRACE_COMMAND, "-o", file]);
    return [stdout, countTrace(readFileSync(file, "latin1"))];
  });
  countRound((call) => runFromSources(state, call));
  return Object.fromEntries(Object.entries(counts).map(([verb, rows]) => [verb, mergeRows(rows)]));
}

/** The least of each figure. */
export function mergeRows(rows: readonly Partial<CostRow>[]): CostRow {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))] as (keyof CostRow)[];
  const least = names.map((name) => [name, Math.min(...rows.flatMap((row) => row[name] ?? []))] as const);
  return Object.fromEntries(least) as unknown as CostRow;
}

function startCompiled(cni: string, state: string, call: MeasuredCall, prefix: readonly string[] = []) {
  const link = join(state, call.name);
  if (!Bun.file(link).size) symlinkSync(cni, link);
  const ended = call.host.run(() => runProcess({ ...call, argv: [...prefix, link, ...call.argv] }));
  return requireMeasured(call, ended);
}

const requireMeasured = <T extends ProcessResult>({ name, argv, env }: MeasuredCall, ended: T): T =>
  requireSuccess({ argv: [name, ...argv, env["CNI_COMMAND"] ?? ""] }, ended);

function runFromSources(state: string, call: MeasuredCall): readonly [string, Partial<CostRow>] {
  const file = join(state, "modules");
  rmSync(file, { force: true });
  const [preload, entry] = ["scripts/src/budget/modules.ts", "cmd/cni.ts"].map((path) => join(REPOSITORY_ROOT, path));
  const command = [process.execPath, "--preload", preload!, entry!, ...call.argv];
  const env = { ...call.env, BUDGET_MODULES: file };
  const stdin = Buffer.from(call.stdin);
  const child = call.host.run(() =>
    Bun.spawnSync(command, { argv0: call.name, env, stdin, cwd: state, stderr: "pipe" })
  );
  const [stdout, stderr] = [`${child.stdout}`, `${child.stderr}`];
  requireMeasured(call, { ms: 0, exitCode: child.exitCode, signal: null, stdout, stderr });
  const found = readFileSync(file, "utf8").split("\n");
  // The build puts the numbers of a uapi.ts in the place of their names.
  const ownModules = found.filter((path) =>
    path.startsWith(REPOSITORY_ROOT) && isProductSource(relative(REPOSITORY_ROOT, path)) && !path.endsWith("/uapi.ts")
  );
  const packages = found.filter((path) => path.includes("/node_modules/")).length;
  return [stdout, { codeBytes: ownModules.reduce((sum, path) => sum + codeLength(path), 0), packages }];
}

const TRANSPILER = new Bun.Transpiler({ loader: "ts", minifyWhitespace: true });

/** Imports are left out: the bundler joins the modules, so that it costs nothing to cut one in two. */
const codeLength = (path: string): number =>
  TRANSPILER.transformSync(readFileSync(path, "utf8")).replace(/\bimport[^;"]*from"[^"]*";/g, "").length;
