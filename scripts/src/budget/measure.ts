/** Measures what every verb of a plugin costs. @module */
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { runProcess } from "../harness/process.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import { chainSubject, CLI_ENTRY, type MeasuredCall, pluginSubject, type RunMeasuredCall } from "./calls.ts";
import { type CallCost, COUNT_STRACE_COMMAND, countTrace } from "./count.ts";

/** A {@linkcode CallCost}, and what no trace tells. */
export interface CostRow extends CallCost {
  /** Minor page faults, of the whole process less those of an empty one. */
  readonly faults: number;
  /** Bytes of the program's code that is loaded, without comments, types, imports and white space. */
  readonly codeBytes: number;
  /** Files of packages besides. */
  readonly packages: number;
}

const TRANSPILER = new Bun.Transpiler({ loader: "ts", minifyWhitespace: true });

/** By plugin and verb: `rows.bridge.ADD`. */
export type CostRows = Readonly<Record<string, Readonly<Record<string, CostRow>>>>;

/** How often a call is made for its page faults; the least counts, because other processes only add. */
const FAULT_ROUNDS = 2;

/** Who is measured. */
export interface MeasuredPrograms {
  /** The compiled program, and an empty one compiled in the same way. */
  readonly cni: string;
  readonly empty: string;
}

/** Measures a plugin, or the chain if it is `cni run`. */
export function measureCosts({ cni, empty }: MeasuredPrograms, name: string): CostRows[string] {
  using scope = new DisposableStack();
  const state = mkdtempSync(join(tmpdir(), "cni-budget-"));
  scope.defer(() => rmSync(state, { recursive: true, force: true }));
  const subject = name === "cni run" ? chainSubject(scope, state) : pluginSubject(scope, state, name);
  const counts: Record<string, Partial<CostRow>[]> = {};
  const round = (way: (call: MeasuredCall) => readonly [string, Partial<CostRow>]) => {
    const plain: RunMeasuredCall = (_, call) => startCompiled(cni, state, call).stdout;
    subject.round((verb, call) => {
      const [stdout, row] = way(call);
      (counts[verb] ??= []).push(row);
      return stdout;
    }, plain);
  };
  const faultsOfEmpty = smallest(Array.from({ length: 5 }, () => runProcess({ argv: [empty] }).faults));
  const faults = (call: MeasuredCall) => {
    const { stdout, faults } = startCompiled(cni, state, call);
    return [stdout, { faults: faults - faultsOfEmpty }] as const;
  };
  // The first makes what is made once: the bridge, the table, directories.
  for (let i = 0; i < FAULT_ROUNDS; i++) round(faults);
  round((call) => runTraced(cni, state, call));
  round((call) => runFromSources(state, call));
  return Object.fromEntries(Object.entries(counts).map(([verb, rows]) => [verb, mergeRows(rows)]));
}

const smallest = (values: readonly number[]): number => Math.min(...values);

/** The least of each figure. */
export function mergeRows(rows: readonly Partial<CostRow>[]): CostRow {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))] as (keyof CostRow)[];
  return Object.fromEntries(
    names.map((name) => [name, smallest(rows.flatMap((row) => row[name] ?? []))]),
  ) as unknown as CostRow;
}

function startCompiled(cni: string, state: string, call: MeasuredCall, prefix: readonly string[] = []) {
  const link = join(state, call.name);
  if (!Bun.file(link).size) symlinkSync(cni, link);
  return requireSuccess(call, call.host.run(() => runProcess({ ...call, argv: [...prefix, link, ...call.argv] })));
}

function requireSuccess<T extends { exitCode: number | null; stdout: string; stderr: string }>(
  call: MeasuredCall,
  ended: T,
): T {
  if (ended.exitCode === 0) return ended;
  const what = `${call.name} ${call.env.CNI_COMMAND ?? call.argv.join(" ")}`;
  throw new Error(`Cannot measure "${what}": it ended with ${ended.exitCode}: ${ended.stdout}${ended.stderr}`);
}

function runTraced(cni: string, state: string, call: MeasuredCall) {
  const file = join(state, "trace");
  const { stdout } = startCompiled(cni, state, call, [...COUNT_STRACE_COMMAND, "-o", file]);
  return [stdout, countTrace(readFileSync(file, "latin1"))] as const;
}

function runFromSources(state: string, call: MeasuredCall) {
  const file = join(state, "modules");
  rmSync(file, { force: true });
  const command = [
    process.execPath,
    "--preload",
    join(REPOSITORY_ROOT, "scripts/src/budget/modules.ts"),
    CLI_ENTRY,
    ...call.argv,
  ];
  const child = call.host.run(() =>
    Bun.spawnSync(command, {
      argv0: call.name,
      env: { ...call.env, BUDGET_MODULES: file },
      stdin: Buffer.from(call.stdin),
      cwd: state,
    })
  );
  const { stdout } = requireSuccess(call, {
    exitCode: child.exitCode,
    stdout: child.stdout.toString(),
    stderr: child.stderr.toString(),
  });
  const found = readFileSync(file, "utf8").split("\n");
  // The build puts the numbers of a uapi.ts in the place of their names.
  const ownModules = found.filter((path) =>
    /\/(ffi|spec|plugins|runtime|cmd)\/[^:]*\.ts$/.test(path) && path.startsWith(REPOSITORY_ROOT) &&
    !path.endsWith("/uapi.ts")
  );
  const packages = found.filter((path) => path.includes("/node_modules/"));
  const codeBytes = ownModules.reduce((sum, path) => sum + codeLength(path), 0);
  return [stdout, { codeBytes, packages: packages.length }] as const;
}

/** Imports are left out: the bundler joins the modules, so that it costs nothing to cut one in two. */
function codeLength(path: string): number {
  const code = TRANSPILER.transformSync(readFileSync(path, "utf8"));
  return code.replace(/\bimport[^;"]*from"[^"]*";/g, "").length;
}
