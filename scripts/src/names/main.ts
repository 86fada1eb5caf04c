/** The body of `scripts/names`, see its usage. @module */
import { runNameLoad } from "../../../testing/dnsname_load.ts";
import { markdownTable } from "../harness/markdown.ts";
import { parseScriptOptions } from "../harness/options.ts";
import { median } from "../harness/statistics.ts";

const USAGE = `usage: scripts/names [--names N] [--questions N]
  --names N      containers with a name; default: 10000
  --questions N  how many are asked; default: 100000`;

const { count } = parseScriptOptions(USAGE);
const questions = count("questions", 100_000);
const rows: string[][] = [];
for (const names of [1, count("names", 10_000)]) {
  const { startMs, addMs, answered, seconds } = await runNameLoad({ names, questions, attachments: 100 });
  if (answered < questions) process.exitCode = 1;
  rows.push([
    ...[`${names}`, startMs.toFixed(0), median(addMs).toFixed(2), (questions / seconds).toFixed(0)],
    `${questions - answered}`,
  ]);
}
console.log(markdownTable(["names", "start of the server, ms", "ADD, ms", "questions a second", "lost"], rows));
