import { isIpamPlugin } from "../../../plugins/registry.ts";
import { builtinOf, type LintPlugin } from "../lint_file.ts";
import { pathIn } from "../written_plugin.ts";
import type { LintRule } from "../rule.ts";

export const twoInterfacesRule: LintRule = {
  name: "two-interfaces",
  severity: "error",
  about: "Two plugins of a list that each make the container's interface. The second finds its name in use.",
  bad: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [
    { "type": "bridge" },
    { "type": "macvlan", "master": "eth0" }
  ]
}`,
    },
    finds: ['10-web.conflist:6:15 "macvlan" makes the interface that "bridge" has made already'],
  },
  good: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{ "type": "bridge" }]
}`,
      "20-lan.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "lan",
  "plugins": [{ "type": "macvlan", "master": "eth0" }]
}`,
    },
  },
  find({ plugins }) {
    const [first, ...others] = plugins.filter(makesInterface);
    return others.map((plugin) => ({
      source: plugin.source,
      path: pathIn(plugin, "type"),
      message: `"${plugin.type}" makes the interface that "${first!.type}" has made already`,
      suggestion: "make a network of each",
    }));
  },
};

/** `loopback` works on "lo". ipvlan without IPAM stands on an earlier plugin's interface. */
function makesInterface({ type, ipamType }: LintPlugin): boolean {
  const definition = builtinOf(type);
  if (!definition || type === "loopback" || isIpamPlugin(type)) return false;
  return definition.needsPrevResult?.(ipamType === undefined ? {} : { ipamType }) !== true;
}
