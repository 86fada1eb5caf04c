import type { LintRule } from "../rule.ts";

export const duplicateNameRule: LintRule = {
  name: "duplicate-name",
  severity: "warning",
  about: "Two files that configure a network of one name. Commands use the file that sorts first.",
  bad: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{ "type": "loopback" }]
}`,
      "20-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{ "type": "bridge" }]
}`,
    },
    finds: ['20-web.conflist:3:11 network "web" is also in 10-web.conflist, which is used'],
  },
  good: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{ "type": "loopback" }]
}`,
      "20-shop.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "shop",
  "plugins": [{ "type": "bridge" }]
}`,
    },
  },
  find({ source, name }, { earlier }) {
    const used = name === undefined ? undefined : earlier.findByName(name);
    if (!used) return [];
    const message = `network "${name}" is also in ${used.source.path}, which is used`;
    return [{ source, path: "name", message, suggestion: "rename it, or remove one of the files" }];
  },
};
