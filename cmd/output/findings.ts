import type { DoctorReport, RepairOutcome } from "../../inspect/doctor/doctor.ts";
import type { CheckFinding, NetworkDiagnosis } from "../../inspect/doctor/examine.ts";
import { printable } from "../../spec/printable.ts";
import type { Screen, Style } from "./screen.ts";

const SIGNS: Readonly<Record<CheckFinding["severity"], readonly [sign: string, style: Style]>> = {
  ok: ["✓", "green"],
  broken: ["✗", "red"],
  warning: ["!", "yellow"],
};
const INDENT = 2;

export function formatDoctorReport({ networks, broken, warnings }: DoctorReport, screen: Screen): string {
  const totals = `${broken} broken, ${warnings} ${warnings === 1 ? "warning" : "warnings"}`;
  const repairable = networks.flatMap(({ findings }) => findings).filter(({ repair }) => repair).length;
  const fix = repairable === 0 ? "" : `; with --fix, ${repairable} of them can be mended`;
  return [...networks.map((diagnosis) => formatDiagnosis(diagnosis, screen)), `${totals}${fix}\n`].join("\n");
}

function formatDiagnosis({ network, source, containers, findings }: NetworkDiagnosis, screen: Screen): string {
  const count = containers.length === 1 ? "1 container" : `${containers.length} containers`;
  const title = network === "" ? `File ${source}` : `Network "${network}" (${source ?? "standard input"}), ${count}`;
  const lines = findings.flatMap((finding) => formatFinding(finding, screen));
  return [screen.style("bold", printable(title)), ...lines].map((line) => `${line}\n`).join("");
}

function formatFinding({ severity, what, advice, mend, mayDisconnect }: CheckFinding, screen: Screen): string[] {
  const [sign, style] = SIGNS[severity];
  const head = hanging(`${screen.style(style, sign)} `, INDENT, printable(what), screen);
  const below = INDENT * 2;
  return [
    ...head,
    ...advice === undefined ? [] : hanging("", below, printable(advice), screen),
    ...mayDisconnect ? hanging("", below, "careful: this can cut off a remote login", screen) : [],
    // Not wrapped: people copy the command.
    ...mend === undefined ? [] : [`${" ".repeat(below)}-> ${printable(mend)}`],
  ];
}

function hanging(sign: string, indent: number, text: string, { columns }: Screen): string[] {
  const width = indent + Bun.stringWidth(sign);
  const MIN_WIDTH = 20;
  const wrapped = columns === undefined ? text : Bun.wrapAnsi(text, Math.max(columns - width, MIN_WIDTH));
  return wrapped.split("\n").map((line, i) => `${" ".repeat(i === 0 ? indent : width)}${i === 0 ? sign : ""}${line}`);
}

export function formatRepairOutcome({ finding, outcome, reason }: RepairOutcome): string {
  const mend = printable(finding.mend ?? finding.what);
  return reason === undefined ? `${outcome}: ${mend}` : `${outcome}: ${mend}: ${printable(reason)}`;
}
