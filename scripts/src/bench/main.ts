/** The body of `scripts/bench`: measures our sides and others' in turn, and prints medians and whether the goals are met. @module */
import { writeFileSync } from "node:fs";
import { cpus, release, totalmem } from "node:os";
import { join } from "node:path";
import { chooseParts, parseScriptOptions } from "../harness/options.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import { kubeRouterRows } from "./beside_kube_router.ts";
import { bridgeRows } from "./bridge.ts";
import { chainRows } from "./chain.ts";
import { clusterRows } from "./cluster.ts";
import { concurrentCallRows } from "./concurrent_calls.ts";
import { leftBehindRows } from "./left_behind.ts";
import { awaitNamespaceCleanup } from "./measure.ts";
import { memoryRows } from "./memory.ts";
import { nodePacketRows } from "./node_packets.ts";
import { policyRows } from "./policy.ts";
import { policyLatencyRows } from "./policy_latency.ts";
import { policyScaleRows } from "./policy_scale.ts";
import { reservationRows } from "./reservations.ts";
import { sandboxRows } from "./sandbox.ts";
import { measureScale } from "./scale.ts";
import { serveRows } from "./serve.ts";
import { startupRows } from "./startup.ts";
import { type BenchFigures, type BenchRow, countGoals, formatMarkdown } from "./table.ts";
import { gcRows, restoreRows } from "./upkeep.ts";
import { type BenchWorkspace, prepareBench } from "./workspace.ts";

type Figures = readonly BenchRow[] | (Partial<BenchFigures> & Pick<BenchFigures, "rows">);
type Section = (bench: BenchWorkspace) => Figures | Promise<readonly BenchRow[]>;

/** The sections by the words that choose them, those last that leave the kernel the most to clean up. */
const SECTIONS: Readonly<Record<string, Section>> = {
  start: startupRows,
  bridge: bridgeRows,
  chain: chainRows,
  "host-local": reservationRows,
  serve: serveRows,
  "left-behind": leftBehindRows,
  memory: memoryRows,
  sandbox: sandboxRows,
  once: concurrentCallRows,
  gc: gcRows,
  restore: restoreRows,
  cluster: clusterRows,
  packets: nodePacketRows,
  policy: policyRows,
  "policy-latency": policyLatencyRows,
  "policy-scale": policyScaleRows,
  "kube-router": kubeRouterRows,
  scale: measureScale,
};

const USAGE = `usage: scripts/bench [--runs N] [SECTION…] [quick]
  --runs N   rounds per row, 30 by default
  quick      few rounds and small sizes, to see that it works; nothing is written to bench/
  SECTION    ${Object.keys(SECTIONS).join(", ")}; all by default`;

const options = parseScriptOptions(USAGE);
const quick = options.words.includes("quick");
const rounds = options.count("runs", quick ? 3 : 30);
const sections = chooseParts(Object.keys(SECTIONS), options, "quick");

const processors = `${cpus().length} × ${cpus()[0]!.model.trim()}`;
const machine = `${processors}, ${Math.round(totalmem() / 2 ** 30)} GiB, Linux ${release()}`;
const about = `${new Date().toISOString().slice(0, 10)}, ${machine}, median of ${rounds} interleaved runs`;
let figures: BenchFigures = { about, rows: [], lines: [], remarks: [], times: [] };
using bench = prepareBench(rounds, quick);
for (const name of sections) {
  console.error(`Measuring ${name}`);
  try {
    using scope = new DisposableStack();
    const found = await SECTIONS[name]!({ ...bench, scope });
    const added = "rows" in found ? found : { rows: found };
    figures = { ...figures, ...added, rows: [...figures.rows, ...added.rows] };
  } catch (error) {
    console.error(`Cannot measure ${name}: ${(error as Error).message}`);
    process.exitCode = 1;
  }
  awaitNamespaceCleanup();
}
console.log(formatMarkdown(figures));
for (const { what, note } of figures.rows) if (note) console.log(`\n${what}: ${note}.`);
// A part of the table does not replace a whole one.
if (!quick && options.words.length === 0 && process.exitCode === undefined) {
  writeFileSync(join(REPOSITORY_ROOT, "bench/latest.json"), `${JSON.stringify(figures, null, 2)}\n`);
  console.log("\nWritten: bench/latest.json");
}
const { met, missed } = countGoals(figures.rows);
console.log(`\n${met} goals met, ${missed} not met`);
// Figures of quick runs are of small sizes.
if (missed > 0 && !quick) process.exitCode = 1;
