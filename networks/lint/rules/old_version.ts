import { compareVersions, introducedIn, LATEST, type Version } from "../../../spec/version.ts";
import type { LintRule } from "../rule.ts";

const SINCE: readonly (readonly [Version, string])[] = [
  ["0.3.0", "several addresses of one family"],
  [introducedIn.CHECK, "CHECK, and the result of ADD for DEL"],
  [introducedIn.GC, "GC and STATUS"],
];

export const oldVersionRule: LintRule = {
  name: "old-version",
  severity: "note",
  about: "An old `cniVersion`, and what it lacks.",
  bad: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "0.4.0",
  "name": "web",
  "plugins": [{ "type": "loopback" }]
}`,
    },
    finds: ["10-web.conflist:2:17 cniVersion 0.4.0 lacks GC and STATUS"],
  },
  good: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "0.4.0", "cniVersions": ["0.4.0", "1.1.0"],
  "name": "web",
  "plugins": [{ "type": "loopback" }]
}`,
    },
  },
  find({ source, list, cniVersion }) {
    const missing = SINCE.filter(([version]) => compareVersions(cniVersion, version) < 0).map(([, what]) => what);
    if (!list || missing.length === 0) return [];
    const message = `cniVersion ${cniVersion} lacks ${missing.join("; ")}`;
    if (Object.hasOwn(list, "cniVersions")) {
      return [{ source, path: "cniVersions", message, suggestion: `append "${LATEST}"` }];
    }
    const suggestion = `add "cniVersions": ["${cniVersion}", "${LATEST}"]: engines take the newest that they know`;
    return [{ source, path: "cniVersion", message, suggestion }];
  },
};
