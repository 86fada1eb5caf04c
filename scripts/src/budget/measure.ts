/** Measures what every verb of a plugin costs. @module */
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { run } from "../bench/process.ts";
import { ROOT } from "../repository.ts";
import { type Call, type Caller, chainSubject, ENTRY, pluginSubject } from "./calls.ts";
import { type Cost, countTrace, STRACE } from "./count.ts";

/** A {@linkcode Cost}, and what no trace tells. */
export interface Row extends Cost {
  /** Minor page faults, of the whole process less those of an empty one. */
  readonly faults: number;
  /** Modules of the program that are evaluated. */
  readonly modules: number;
  /** Files of packages besides. */
  readonly packages: number;
}

/** By plugin and verb: `rows.bridge.ADD`. */
export type Rows = Readonly<Record<string, Readonly<Record<string, Row>>>>;

/** How often a call is made for its page faults; the least counts, because other processes only add. */
const FAULT_ROUNDS = 2;

/** Who is measured. */
export interface Measured {
  /** The compiled program, and an empty one compiled in the same way. */
  readonly cni: string;
  readonly empty: string;
}

/** Measures a plugin, or the chain if it is `cni run`. */
export function measure({ cni, empty }: Measured, name: string): Rows[string] {
  using scope = new DisposableStack();
  const state = mkdtempSync(join(tmpdir(), "cni-budget-"));
  scope.defer(() => rmSync(state, { recursive: true, force: true }));
  const subject = name === "cni run" ? chainSubject(scope, state) : pluginSubject(scope, state, name);
  const counts: Record<string, Partial<Row>[]> = {};
  const round = (way: (call: Call) => readonly [string, Partial<Row>]) => {
    const plain: Caller = (_, call) => startCompiled(cni, state, call).stdout;
    subject.round((verb, call) => {
      const [stdout, row] = way(call);
      (counts[verb] ??= []).push(row);
      return stdout;
    }, plain);
  };
  const faultsOfEmpty = least(Array.from({ length: 5 }, () => run({ argv: [empty] }).faults));
  const faults = (call: Call) => {
    const { stdout, faults } = startCompiled(cni, state, call);
    return [stdout, { faults: faults - faultsOfEmpty }] as const;
  };
  // The first makes what is made once: the bridge, the table, directories.
  for (let i = 0; i < FAULT_ROUNDS; i++) round(faults);
  round((call) => traced(cni, state, call));
  round((call) => fromSources(state, call));
  return Object.fromEntries(Object.entries(counts).map(([verb, rows]) => [verb, merge(rows)]));
}

const least = (values: readonly number[]): number => Math.min(...values);

/** The least of each figure. */
export function merge(rows: readonly Partial<Row>[]): Row {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))] as (keyof Row)[];
  return Object.fromEntries(
    names.map((name) => [name, least(rows.flatMap((row) => row[name] ?? []))]),
  ) as unknown as Row;
}

function startCompiled(cni: string, state: string, call: Call, prefix: readonly string[] = []) {
  const link = join(state, call.name);
  if (!Bun.file(link).size) symlinkSync(cni, link);
  return succeeded(call, call.host.run(() => run({ ...call, argv: [...prefix, link, ...call.argv] })));
}

function succeeded<T extends { exitCode: number | null; stdout: string; stderr: string }>(call: Call, ended: T): T {
  if (ended.exitCode === 0) return ended;
  const what = `${call.name} ${call.env.CNI_COMMAND ?? call.argv.join(" ")}`;
  throw new Error(`Cannot measure "${what}": it ended with ${ended.exitCode}: ${ended.stdout}${ended.stderr}`);
}

function traced(cni: string, state: string, call: Call) {
  const file = join(state, "trace");
  const { stdout } = startCompiled(cni, state, call, [...STRACE, "-o", file]);
  return [stdout, countTrace(readFileSync(file, "latin1"))] as const;
}

function fromSources(state: string, call: Call) {
  const file = join(state, "modules");
  rmSync(file, { force: true });
  const command = [process.execPath, "--preload", join(ROOT, "scripts/src/budget/modules.ts"), ENTRY, ...call.argv];
  const child = call.host.run(() =>
    Bun.spawnSync(command, {
      argv0: call.name,
      env: { ...call.env, BUDGET_MODULES: file },
      stdin: Buffer.from(call.stdin),
      cwd: state,
    })
  );
  const { stdout } = succeeded(call, {
    exitCode: child.exitCode,
    stdout: child.stdout.toString(),
    stderr: child.stderr.toString(),
  });
  const found = readFileSync(file, "utf8").split("\n");
  const own = found.filter((path) =>
    /\/(ffi|spec|plugins|runtime|cmd)\/[^:]*\.ts$/.test(path) && path.startsWith(ROOT)
  );
  const packages = found.filter((path) => path.includes("/node_modules/"));
  return [stdout, { modules: own.length, packages: packages.length }] as const;
}
