import type { LintExample, LintRule } from "../../../networks/lint/rule.ts";
import { findSyntaxProblems } from "../../../spec/source_text.ts";
import { markdownTable } from "../harness/markdown.ts";

/** The table of rules, and an example of each. */
export function lintRulesSection(rules: readonly LintRule[]): string {
  const rows = rules.map(({ name, severity, about }) => [`[\`${name}\`](#${name})`, severity, about]);
  return [markdownTable(["rule", "severity", "finds"], rows), ...rules.map(ruleEntry)].join("\n");
}

function ruleEntry({ name, bad, good }: LintRule): string {
  return [
    `### ${name}\n`,
    ...hostLines(bad),
    ...fileLines(bad, () => "jsonc"),
    ...bad.finds.map((found) => `- \`${found}\``),
    "",
    "Without a problem:\n",
    ...fileLines(good, (text) => findSyntaxProblems(text, { strict: true }).length === 0 ? "json" : "jsonc"),
  ].join("\n");
}

function hostLines({ host = [] }: LintExample): string[] {
  return host.length === 0 ? [] : ["On a host with:\n", ...host.map((command) => `    ip ${command}`), ""];
}

/** Engines read what is in `json`. */
function fileLines({ files }: LintExample, languageOf: (text: string) => "json" | "jsonc"): string[] {
  return Object.entries(files).flatMap(([name, text]) => [
    `\`${name}\`:\n`,
    `\`\`\`${languageOf(text)}\n${text}\n\`\`\`\n`,
  ]);
}
