/** How a long harness runs: its parts on nodes of their own, what they report, and how it ends. @module */
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import { runInLanes, startOnNewNode } from "./node.ts";
import type { ScriptOptions } from "./options.ts";

export interface TrialReport {
  readonly name: string;
  /** What a trial that went well tells people. */
  readonly said?: string;
  /** What was wrong in a trial that failed. */
  readonly problem?: string;
  /** What the command of the trial said. */
  readonly output?: string;
}

export interface Campaign<Report extends TrialReport> {
  readonly options: ScriptOptions;
  readonly parts: readonly string[];
  /** So many parts at a time. */
  readonly lanes?: number;
  /** Where a usage has `--seed`. */
  readonly seed?: number;
  work(part: string): AsyncIterable<Report> | Iterable<Report>;
  summary?(reports: readonly Report[]): string;
}

/** Tries all parts, each by this script on a new node. The exit status is 1 if a trial failed, and 130 after an interruption. */
export async function runCampaign<Report extends TrialReport>(campaign: Campaign<Report>): Promise<void> {
  const { options: { part }, parts, lanes = 1, seed, summary = countProblems } = campaign;
  if (part !== undefined) {
    for await (const report of campaign.work(part)) console.log(JSON.stringify(report));
    return;
  }
  if (seed !== undefined) console.log(`seed ${seed}`);
  const all: Report[] = [];
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.once(signal, () => {
      console.log(summary(all));
      console.error(`${signal}: not all was tried`);
      process.exit(130);
    });
  }
  const tell = (report: Report) => {
    all.push(report);
    const { name, said, problem, output = "" } = report;
    if (said !== undefined) console.log(`${name}: ${said}`);
    if (problem !== undefined) console.log(`FAILED ${name}\n  ${problem}${output && `\n  output: ${output}`}`);
  };
  // The last of two options counts: all parts have the same seed.
  const words = seed === undefined ? [] : ["--seed", `${seed}`];
  let ended = 0;
  const jobs = parts.map((name) => async () => {
    const started = performance.now();
    await tryPart(name, words, tell as (report: TrialReport) => void);
    const seconds = Math.round((performance.now() - started) / 1000);
    if (parts.length > 1) console.error(`${name} ended after ${seconds} s, ${++ended} of ${parts.length}`);
  });
  await runInLanes(lanes, jobs);
  console.log(summary(all));
  process.exitCode = all.length === 0 || countFailed(all) > 0 ? 1 : 0;
}

async function tryPart(
  name: string,
  options: readonly string[],
  tell: (report: TrialReport) => void,
): Promise<void> {
  const child = startOnNewNode(...process.argv.slice(2), ...options, "--part", name);
  for await (const line of createInterface({ input: Readable.from(child.stdout) })) {
    // What is no report is progress, for people.
    if (line.startsWith("{")) tell(JSON.parse(line));
    else console.log(line);
  }
  if (await child.exited !== 0) tell({ name, problem: "It ended early" });
}

export const countFailed = (reports: readonly TrialReport[]): number =>
  reports.filter(({ problem }) => problem !== undefined).length;

const countProblems = (reports: readonly TrialReport[]): string =>
  countFailed(reports) === 0 ? "no problem" : `${countFailed(reports)} problems`;

/** Carries out a step so often. */
export async function* tryStep(name: string, step: () => Promise<string>, rounds = 1): AsyncGenerator<TrialReport> {
  for (let round = 0; round < rounds; round++) {
    try {
      yield { name, said: await step() };
    } catch (error) {
      yield { name, problem: (error as Error).message };
    }
  }
}
