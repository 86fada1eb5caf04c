import type { LintRule } from "../rule.ts";

export const fileExtensionRule: LintRule = {
  name: "file-extension",
  severity: "warning",
  about:
    "A list in a file whose name does not end in `.conflist`, or a single plugin in one that does. Other programs cannot load it.",
  bad: {
    files: {
      "10-web.conf": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{ "type": "loopback" }]
}`,
    },
    finds: ['10-web.conf:4:3 a list of plugins belongs into a file whose name ends in ".conflist"'],
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
  find({ source, list, isSinglePlugin }) {
    const extension = /\.[^./]*$/.exec(source.path)?.[0];
    const isList = list !== undefined && Object.hasOwn(list, "plugins");
    if (isList && extension !== undefined && [".conf", ".json"].includes(extension)) {
      const message = 'a list of plugins belongs into a file whose name ends in ".conflist"';
      return [{ source, path: "plugins", part: "key", message, suggestion: "rename the file" }];
    }
    if (!isSinglePlugin || extension !== ".conflist") return [];
    const message = 'a file whose name ends in ".conflist" has a list of plugins';
    return [{ source, path: "type", part: "key", message, suggestion: 'put the plugin into "plugins": […]' }];
  },
};
