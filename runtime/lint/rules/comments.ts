import { findSyntaxProblems } from "../../../spec/source_text.ts";
import type { LintRule } from "../rule.ts";

export const commentsRule: LintRule = {
  name: "comments",
  severity: "note",
  about: "A comment or a trailing comma. Other programs that read the directory, such as podman, refuse the file.",
  bad: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.1.0",
  "name": "web", // for the shop
  "plugins": [{ "type": "loopback" }]
}`,
    },
    finds: ["10-web.conflist:3:18 comments and trailing commas are no JSON: only this program accepts them"],
  },
  good: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.1.0",
  "name": "web",
  "x-comment": "for the shop",
  "plugins": [{ "type": "loopback" }]
}`,
    },
  },
  find({ source, syntaxError }) {
    const [first] = syntaxError === undefined ? findSyntaxProblems(source.text, { strict: true }) : [];
    if (!first) return [];
    const message = "comments and trailing commas are no JSON: only this program accepts them";
    return [{ source, path: "", offset: first.offset, message, suggestion: 'use a key such as "x-comment"' }];
  },
};
