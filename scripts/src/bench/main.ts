/**
 * The measurement behind `scripts/bench`: every row runs its sides in turn, so that a machine whose speed drifts slows all of them, and
 * prints medians and whether the goals are met. The parts are in `scripts/src/bench/`.
 *
 * @module
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { cpus, release, totalmem } from "node:os";
import { join } from "node:path";
import { exitWithUsage, parseScriptOptions } from "../harness/options.ts";
import { concurrentAddRows } from "./concurrent_adds.ts";
import { chainRows } from "./chain.ts";
import { gcRows } from "./gc.ts";
import { awaitNamespaceCleanup } from "./measure.ts";
import { memoryRows } from "./memory.ts";
import { type BenchWorkspace, prepareBench } from "./workspace.ts";
import { bridgeRows } from "./bridge.ts";
import { plot } from "./plot.ts";
import { reservationRows } from "./reservations.ts";
import { measureScale, type ScaleResult } from "./scale.ts";
import { startupRows } from "./startup.ts";
import { type BenchRow, type BenchSection, formatMarkdown } from "./table.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

/** The sections by the words that choose them, those last that leave the kernel the most to clean up. */
const SECTIONS: Readonly<Record<string, (bench: BenchWorkspace) => readonly BenchRow[] | ScaleResult>> = {
  start: startupRows,
  bridge: bridgeRows,
  chain: chainRows,
  "host-local": reservationRows,
  memory: memoryRows,
  once: concurrentAddRows,
  gc: gcRows,
  scale: measureScale,
};

const USAGE = `usage: scripts/bench [--runs N] [--quick] [SECTION…]
  --runs N   rounds per row, 30 by default
  --quick    few rounds and small sizes, to see that it works; nothing is written to bench/
  SECTION    ${Object.keys(SECTIONS).join(", ")}; all by default`;

function main(): void {
  const { values, words } = parseScriptOptions(USAGE, ["runs"], ["quick"]);
  const quick = values.quick ?? false;
  const rounds = Number(values.runs ?? (quick ? 3 : 30));
  const unknown = words.find((name) => !(name in SECTIONS));
  if (unknown !== undefined) exitWithUsage(`There is no section "${unknown}"`, USAGE);
  if (!Number.isInteger(rounds) || rounds < 1) exitWithUsage(`Cannot run ${values.runs} rounds`, USAGE);
  const chosen = words.length > 0 ? words : Object.keys(SECTIONS);
  using bench = prepareBench({ quick, rounds, log: console.error });
  const sections: BenchSection[] = [];
  let scaling: ScaleResult | undefined;
  for (const name of chosen) {
    const began = performance.now();
    bench.log(`Measuring ${name}`);
    const found = SECTIONS[name](bench);
    if ("lines" in found) scaling = found;
    sections.push({ name, rows: "lines" in found ? found.rows : found });
    bench.log(`  ${((performance.now() - began) / 1000).toFixed(0)} s`);
    awaitNamespaceCleanup();
  }
  const about = `${new Date().toISOString().slice(0, 10)}, ${describeMachine()}, median of ${rounds} interleaved runs`;
  console.log(`${about}\n\n${formatMarkdown(sections)}`);
  for (const { what, note } of sections.flatMap(({ rows }) => rows)) if (note) console.log(`\n${what}: ${note}.`);
  // A part of the table does not replace a whole one.
  if (!quick && chosen.length === Object.keys(SECTIONS).length) save(about, sections, scaling!);
}

function describeMachine(): string {
  return `${cpus().length} × ${cpus()[0].model.trim()}, ${Math.round(totalmem() / 2 ** 30)} GiB, Linux ${release()}`;
}

function save(about: string, sections: readonly BenchSection[], { lines, remarks }: ScaleResult): void {
  const directory = join(REPOSITORY_ROOT, "bench");
  mkdirSync(directory, { recursive: true });
  const title = "Attaching a container to the whole chain, two published ports each";
  writeFileSync(join(directory, "latest.json"), `${JSON.stringify({ about, sections, lines, remarks }, null, 2)}\n`);
  writeFileSync(join(directory, "containers.svg"), plot(lines, { title, subtitle: about, remarks }));
  console.log("\nWritten: bench/latest.json, bench/containers.svg");
}

main();
