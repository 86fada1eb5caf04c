import { familyOf } from "../../../ffi/address.ts";
import { findKey, findValue, isJsonObject } from "../../../spec/schema.ts";
import { builtinOf, type LintFile, type LintPlugin } from "../lint_file.ts";
import { pathIn } from "../written_plugin.ts";
import type { LintRule } from "../rule.ts";

/** Their routes are in the configuration. Others, such as `dhcp`, learn them. */
const IPAM_TYPES = ["host-local", "static"];

export const missingRouteRule: LintRule = {
  name: "missing-route",
  severity: "warning",
  about:
    "`ipMasq` without `isDefaultGateway` and without `routes`. The container has no route beyond its subnet, so it sends nothing that could be masqueraded.",
  bad: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{
    "type": "bridge",
    "isGateway": true,
    "ipMasq": true,
    "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.30.0.0/24" }]] }
  }]
}`,
    },
    finds: [
      "10-web.conflist:7:5 nothing reaches the masquerading: the container gets no route beyond its subnet",
    ],
  },
  good: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{
    "type": "bridge",
    "isDefaultGateway": true,
    "ipMasq": true,
    "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.30.0.0/24" }]] }
  }]
}`,
    },
  },
  find: (file) =>
    file.plugins.filter((plugin) => lacksRoute(plugin, file)).map((plugin) => ({
      source: plugin.source,
      path: pathIn(plugin, findKey(plugin.raw, "ipMasq")!),
      part: "key" as const,
      message: "nothing reaches the masquerading: the container gets no route beyond its subnet",
      suggestion: `${plugin.type === "bridge" ? 'add "isDefaultGateway": true, or add' : "add"} "routes": [{ "dst": "${
        defaultDestinationOf(plugin)
      }" }] to "ipam"`,
    })),
};

function lacksRoute(plugin: LintPlugin, { plugins }: LintFile): boolean {
  const { raw, type, ipamType = "" } = plugin;
  if (!["bridge", "ptp"].includes(type) || findValue(raw, "ipMasq") !== true) return false;
  // Another program's plugin, such as route-override, may add routes.
  if (!IPAM_TYPES.includes(ipamType) || plugins.some((other) => !builtinOf(other.type))) return false;
  const ipam = findValue(raw, "ipam");
  const routes = isJsonObject(ipam) ? findValue(ipam, "routes") : undefined;
  const hasRoutes = Array.isArray(routes) && routes.length > 0;
  return !hasRoutes && !plugin.network?.addsDefaultRoutes;
}

function defaultDestinationOf(plugin: LintPlugin): string {
  const { ranges } = plugin;
  return ranges.length > 0 && ranges.every(({ range }) => familyOf(range.subnet) === 6) ? "::/0" : "0.0.0.0/0";
}
