import { findDuplicateKeys } from "../../../runtime/duplicate_keys.ts";
import type { LintRule } from "../rule.ts";

export const duplicateKeyRule: LintRule = {
  name: "duplicate-key",
  severity: "warning",
  about: "A key that an object has more than once. Only the last one counts.",
  bad: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [
    { "type": "bridge", "mtu": 1400, "ipMasq": true, "mtu": 1500 }
  ]
}`,
    },
    finds: ["10-web.conflist:5:54 plugins[0].mtu is there more than once, and this last one counts"],
  },
  good: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [
    { "type": "bridge", "mtu": 1500, "ipMasq": true }
  ]
}`,
    },
  },
  find({ source, syntaxError, plugins }) {
    const sources = new Set([source, ...plugins.map((plugin) => plugin.source)]);
    return syntaxError !== undefined ? [] : [...sources].flatMap((text) =>
      findDuplicateKeys(text.text).map((path) => ({
        source: text,
        path,
        part: "key" as const,
        message: `${path} is there more than once, and this last one counts`,
        suggestion: "keep one of them",
      }))
    );
  },
};
