/** The body of `scripts/names`, see its usage. @module */
import { runForwardLoad } from "../../../testing/dnsname_forward_load.ts";
import { runNameLoad } from "../../../testing/dnsname_load.ts";
import { formatFaults } from "../faults/report.ts";
import { runCampaign } from "../harness/campaign.ts";
import { markdownTable } from "../harness/markdown.ts";
import { chooseParts, parseScriptOptions, seedOf } from "../harness/options.ts";
import { median } from "../harness/statistics.ts";
import { runNameFaults } from "./faults.ts";

const USAGE = `usage: scripts/names [load] [--names N] [--questions N]
       scripts/names forward [--questions N]
       scripts/names faults [--sample N] [--seed N] [WORD…]
  --names N      containers with a name; default: 10000
  --questions N  how many are asked; default: 100000
  --sample N     so many faults, all kinds in turn; default: all
  --seed N       chooses them; default: another one each time
  WORD           faults whose names have all these words: plugin, server; ADD, CHECK, DEL, GC; sendto, 12; KILL, EIO, …`;

const options = parseScriptOptions(USAGE);
const { usage, words: [section = "load", ...words], count } = options;
const SECTIONS: Readonly<Record<string, () => Promise<void>>> = {
  load: measureLoad,
  forward: measureForwarding,
  faults: testFaults,
};
for (const name of chooseParts(Object.keys(SECTIONS), { usage, words: [section] })) await SECTIONS[name]!();

async function measureLoad(): Promise<void> {
  const questions = count("questions", 100_000);
  const rows: string[][] = [];
  for (const names of [1, count("names", 10_000)]) {
    const { startMs, addMs, answered, seconds } = await runNameLoad({ names, questions, attachments: 100 });
    if (answered < questions) process.exitCode = 1;
    rows.push([
      `${names}`,
      startMs.toFixed(0),
      median(addMs).toFixed(2),
      (questions / seconds).toFixed(0),
      `${questions - answered}`,
    ]);
  }
  console.log(markdownTable(["names", "start of the server, ms", "ADD, ms", "questions a second", "lost"], rows));
}

/** What it saves to keep answers of resolvers: with TTL 0, none is kept. */
async function measureForwarding(): Promise<void> {
  const questions = count("questions", 10_000);
  const rows: string[][] = [];
  for (const delayMs of [0, 1, 20]) {
    for (const ttl of [0, 60]) {
      const alone = await runForwardLoad({ questions: Math.min(questions, 500), window: 1, delayMs, ttl });
      const many = await runForwardLoad({ questions, window: 64, delayMs, ttl });
      if (many.answered < questions) process.exitCode = 1;
      rows.push([
        `${delayMs}`,
        ttl === 0 ? "no" : "yes",
        median(alone.latencyMs).toFixed(2),
        (many.answered / many.seconds).toFixed(0),
        (many.serverSeconds / many.answered * 1e6).toFixed(0),
        `${questions - many.answered}`,
      ]);
    }
  }
  const columns = ["resolver, ms", "kept", "one question, ms", "questions a second", "processor, µs each", "lost"];
  console.log(markdownTable(columns, rows));
}

async function testFaults(): Promise<void> {
  const sample = count("sample", Infinity);
  const seed = seedOf(options);
  await runCampaign({
    options,
    parts: ["faults"],
    seed,
    work: () => runNameFaults({ sample, seed, words }),
    summary: (reports) => formatFaults(reports, ({ name }) => name.replace(/ \w+#.*/, "")),
  });
}
