import { findSyntaxProblems } from "../../../spec/source_text.ts";
import type { LintFile } from "../lint_file.ts";
import type { LintFinding, LintRule } from "../rule.ts";

export const syntaxRule: LintRule = {
  name: "syntax",
  severity: "error",
  about: "A file that cannot be read or is no JSON. Comments and trailing commas are allowed.",
  bad: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web"
  "plugins": [{ "type": "loopback" }]
}`,
    },
    finds: ["10-web.conflist:4:3 comma expected"],
  },
  good: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{ "type": "loopback" }]
}`,
    },
  },
  find: (file) => [file, ...file.unreadable].flatMap(findInText),
};

function findInText({ source, syntaxError }: LintFile): LintFinding[] {
  if (syntaxError === undefined) return [];
  const problems = source.text === "" ? [] : findSyntaxProblems(source.text).filter(({ offset }, i, all) =>
    // An error often causes others in its line.
    i === 0 || source.spanAt(offset).line !== source.spanAt(all[i - 1]!.offset).line
  );
  const parsed = `Cannot parse ${source.path}`;
  const reason = syntaxError.startsWith(parsed)
    ? syntaxError.slice(parsed.length).replace(/^[:0-9]*: /, "")
    : syntaxError;
  const isEmpty = source.text.trim() === "" && reason === "value expected";
  if (isEmpty) return [{ source, path: "", offset: 0, message: "the file is empty" }];
  if (problems.length === 0) return [{ source, path: "", offset: 0, message: reason }];
  return problems.map(({ message, offset }) => ({
    source,
    path: "",
    offset,
    message,
    ...source.text[offset] === "'" && { suggestion: "use double quotes" },
  }));
}
