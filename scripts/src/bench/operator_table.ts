import { markdownTable } from "../harness/markdown.ts";
import type { BenchFigures, BenchRow } from "./table.ts";

/** What people wait for, and the rows of the full table that measure it: without a server, and with the one that the first ADD starts. */
const LINES: readonly (readonly [what: string, cold: string, served: string])[] = [
  ...(["start", "stop"] as const).map((verb) =>
    [
      `containerd: ${verb} of a pod`,
      `A pod of both families with a host port and limits by containerd's CRI: ${verb}`,
      `A pod of both families with a host port and limits by containerd's CRI, served: ${verb}`,
    ] as const
  ),
  ...verbLines(
    "engine: ADD of the chain",
    "Whole chain with ports and a setting, by pipes, plugin by plugin",
    "served by a new server",
  ),
  [
    "engine: ADD of `bridge` alone, without rules",
    "bridge + host-local without rules, exec'ed: ADD",
    "bridge + host-local without rules, exec'ed, served: ADD",
  ],
  [
    "engine: 100 ADDs of the chain at once",
    "100 ADDs at once plugin by plugin",
    "100 ADDs at once plugin by plugin, served",
  ],
  ...verbLines("`cni run`: ADD of the chain", "Whole chain with a TCP and a UDP port, by `cni run`", "served"),
];

function verbLines(what: string, row: string, served: string) {
  return ["ADD", "DEL"].map((verb) =>
    [what.replace("ADD", verb), `${row}, not served: ${verb}`, `${row}, ${served}: ${verb}`] as const
  );
}

/** Engines first, then the command line. @throws {Error} if the figures lack a row */
export function operatorTable({ rows }: BenchFigures): string {
  const find = (what: string): BenchRow => {
    const row = rows.find((each) => each.what === what);
    if (row === undefined) throw new Error(`bench/latest.json has no row "${what}"`);
    return row;
  };
  return markdownTable(
    ["who waits for what", "Go plugins", "cni", "without its server"],
    LINES.map(([what, cold, served]) => [
      what,
      find(cold).against.replace(" reference", ""),
      find(served).cni,
      find(cold).cni,
    ]),
  );
}
