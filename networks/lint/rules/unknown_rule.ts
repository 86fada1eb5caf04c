import { unknownRuleFindings } from "../disable_comment.ts";
import type { LintRule } from "../rule.ts";

export function unknownRuleRule(others: readonly string[]): LintRule {
  const name = "unknown-rule";
  const rules = [...others, name];
  return {
    name,
    severity: "warning",
    about: "A comment that switches off a rule that does not exist.",
    bad: {
      files: {
        "10-web.conflist": `// cni-lint-disable comments, unknown-keys
{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{ "type": "loopback" }]
}`,
      },
      finds: ['10-web.conflist:1:31 there is no rule "unknown-keys"'],
    },
    good: {
      files: {
        "10-web.conflist": `// cni-lint-disable comments, unknown-key
{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{ "type": "loopback" }]
}`,
      },
    },
    find: ({ source }) => unknownRuleFindings(source, rules),
  };
}
