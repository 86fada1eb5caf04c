import { findSyntaxProblems } from "../../../spec/source_text.ts";
import { isReadByEngine } from "../engine_directories.ts";
import type { LintRule } from "../rule.ts";

const NO_JSON = "comments and trailing commas are no JSON";

export const commentsRule: LintRule = {
  name: "comments",
  severity: "note",
  about:
    "A comment or a trailing comma, which only `cni` reads. It is an error in a directory that engines read: `/etc/cni/net.d`, and what the configuration of containerd, CRI-O or podman names.",
  bad: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web", // for the shop
  "plugins": [{ "type": "loopback" }]
}`,
    },
    finds: ["10-web.conflist:3:18 comments and trailing commas are no JSON: only this program accepts them"],
  },
  good: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "x-comment": "for the shop",
  "plugins": [{ "type": "loopback" }]
}`,
    },
  },
  find({ source, syntaxError }) {
    const [first] = syntaxError === undefined ? findSyntaxProblems(source.text, { strict: true }) : [];
    if (!first) return [];
    const finding = { source, path: "", offset: first.offset, suggestion: 'use a key such as "x-comment"' };
    return isReadByEngine(source.path)
      ? [{ ...finding, severity: "error", message: `${NO_JSON}: containerd and podman cannot read this file` }]
      : [{ ...finding, message: `${NO_JSON}: only this program accepts them` }];
  },
};
