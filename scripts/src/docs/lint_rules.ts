import type { LintExample, LintRule } from "../../../runtime/lint/rule.ts";
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
    ...fileLines(bad),
    ...bad.finds.map((found) => `- \`${found}\``),
    "",
    "Without a problem:\n",
    ...fileLines(good),
  ].join("\n");
}

function hostLines({ host = [] }: LintExample): string[] {
  return host.length === 0 ? [] : ["On a host with:\n", ...host.map((command) => `    ip ${command}`), ""];
}

function fileLines({ files }: LintExample): string[] {
  return Object.entries(files).flatMap(([name, text]) => [`\`${name}\`:\n`, `\`\`\`jsonc\n${text}\n\`\`\`\n`]);
}
