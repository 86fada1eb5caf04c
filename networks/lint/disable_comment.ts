import { suggestion } from "../../spec/suggest.ts";
import type { SourceText } from "../../spec/source_text.ts";
import type { LintFinding } from "./rule.ts";

interface DisabledRule {
  readonly rule: string;
  readonly offset: number;
}

/** The rules that comments of a file switch off: `// cni-lint-disable RULE RULE`. */
export function disabledRules({ text }: Pick<SourceText, "text">): DisabledRule[] {
  const tokens = text.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"|\/\/[^\n]*|\/\*[^]*?\*\//g);
  return Array.from(tokens).filter(([token]) => token.startsWith("/")).flatMap(({ 0: comment, index }) => {
    const directive = /cni-lint-disable((?:[\s,]+[a-z][a-z-]*)+)/.exec(comment);
    if (!directive) return [];
    const start = index + directive.index + directive[0].length - directive[1]!.length;
    return Array.from(
      directive[1]!.matchAll(/[a-z][a-z-]*/g),
      (word) => ({ rule: word[0], offset: start + word.index }),
    );
  });
}

export function unknownRuleFindings(source: SourceText, ruleNames: readonly string[]): LintFinding[] {
  return disabledRules(source).filter(({ rule }) => !ruleNames.includes(rule)).map(({ rule, offset }) => ({
    source,
    path: "",
    offset,
    message: `there is no rule "${rule}"`,
    suggestion: suggestion(rule, ruleNames).replace(/^; /, "") || undefined,
  }));
}
