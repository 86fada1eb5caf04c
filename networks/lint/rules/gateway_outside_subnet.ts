import { type Cidr, containsIp, familyOf, type Ip, networkOf, parseCidr, parseIp } from "../../../ffi/address.ts";
import { findKey, findValue, isJsonObject, type JsonObject, memberPath } from "../../../spec/schema.ts";
import { attempt } from "../attempt.ts";
import type { LintPlugin } from "../lint_file.ts";
import { pathIn } from "../written_plugin.ts";
import type { LintFinding, LintRule } from "../rule.ts";

export const gatewayOutsideSubnetRule: LintRule = {
  name: "gateway-outside-subnet",
  severity: "warning",
  about:
    "A gateway that is no address of its subnet, so containers cannot reach it. With `isGateway` it is an error: `bridge` refuses it. So is the `gw` of a route that is outside every subnet: the kernel refuses it.",
  bad: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{
    "type": "bridge",
    "isGateway": true,
    "ipam": {
      "type": "host-local",
      "ranges": [[{ "subnet": "10.30.0.0/24", "gateway": "10.31.0.1" }]],
      "routes": [{ "dst": "0.0.0.0/0", "gw": "10.32.0.1" }]
    }
  }]
}`,
    },
    finds: [
      "10-web.conflist:9:58 gateway 10.31.0.1 is outside its subnet 10.30.0.0/24",
      "10-web.conflist:10:46 gateway 10.32.0.1 of this route is outside 10.30.0.0/24",
    ],
  },
  good: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{
    "type": "bridge",
    "isGateway": true,
    "ipam": {
      "type": "host-local",
      "ranges": [[{ "subnet": "10.30.0.0/24", "gateway": "10.30.0.1" }]],
      "routes": [{ "dst": "0.0.0.0/0", "gw": "10.30.0.254" }]
    }
  }]
}`,
    },
  },
  find: ({ plugins }) =>
    plugins.flatMap((plugin) => {
      const { bridge, isRouted } = plugin.network ?? {};
      const isRefused = bridge !== undefined && isRouted;
      const { source } = plugin;
      const ofSubnets = [...rangeGateways(plugin), ...staticGateways(plugin)].filter(isOutside).map(
        ({ path, gateway, subnet }) => ({
          source,
          path,
          message: `gateway ${gateway} is outside its subnet ${subnet}`,
          suggestion: `name an address of ${subnet}`,
          ...isRefused && { severity: "error" as const },
        }),
      );
      return [...ofSubnets, ...findInRoutes(plugin)];
    }),
};

interface ConfiguredGateway {
  readonly path: string;
  readonly gateway: Ip;
  readonly subnet: Cidr;
}

function isOutside({ gateway, subnet }: ConfiguredGateway): boolean {
  return familyOf(gateway) !== familyOf(subnet) || !containsIp(subnet, gateway);
}

function rangeGateways(plugin: LintPlugin): ConfiguredGateway[] {
  return plugin.ranges.filter(({ hasGateway }) => hasGateway).map(({ gatewayPath, range }) => ({
    path: gatewayPath,
    gateway: range.gateway,
    subnet: range.subnet,
  }));
}

interface StaticAddress {
  readonly path: string;
  readonly node: JsonObject;
  readonly subnet: Cidr;
}

function staticAddresses(plugin: LintPlugin): StaticAddress[] {
  if (plugin.ipamType !== "static") return [];
  return ipamObjects(plugin, "addresses").flatMap(({ path, node }) => {
    const subnet = attempt(() => networkOf(parseCidr(String(findValue(node, "address")))));
    return subnet ? [{ path, node, subnet }] : [];
  });
}

function ipamObjects({ raw }: LintPlugin, key: string): { readonly path: string; readonly node: JsonObject }[] {
  const ipamKey = findKey(raw, "ipam") ?? "ipam";
  const ipam = raw[ipamKey];
  const list = isJsonObject(ipam) ? findValue(ipam, key) : undefined;
  if (!isJsonObject(ipam) || !Array.isArray(list)) return [];
  const listPath = memberPath(ipamKey, findKey(ipam, key)!);
  return list.flatMap((node: unknown, i) => isJsonObject(node) ? [{ path: `${listPath}[${i}]`, node }] : []);
}

function staticGateways(plugin: LintPlugin): ConfiguredGateway[] {
  return staticAddresses(plugin).flatMap(({ path, node, subnet }) => {
    const gateway = attempt(() => parseIp(String(findValue(node, "gateway"))));
    return gateway ? [{ path: pathIn(plugin, memberPath(path, findKey(node, "gateway")!)), gateway, subnet }] : [];
  });
}

function findInRoutes(plugin: LintPlugin): LintFinding[] {
  const subnets = [
    ...plugin.ranges.map(({ range }) => range.subnet),
    ...staticAddresses(plugin).map(({ subnet }) => subnet),
  ];
  const routes = ipamObjects(plugin, "routes");
  // The runtime may name further subnets, and a route of another scope may lead to the gateway.
  const capabilities = findValue(plugin.raw, "capabilities");
  const getsSubnets = isJsonObject(capabilities) &&
    ["ips", "ipRanges"].some((name) => findValue(capabilities, name) === true);
  const isComplete = subnets.length > 0 && !getsSubnets &&
    routes.every(({ node }) => findValue(node, "scope") === undefined);
  if (!isComplete) return [];
  return routes.flatMap(({ path, node }) => {
    const gateway = attempt(() => parseIp(String(findValue(node, "gw"))));
    const dst = attempt(() => parseCidr(String(findValue(node, "dst"))));
    // Rule invalid-value tells of the others.
    const isValid = gateway && dst && familyOf(gateway) === familyOf(dst);
    if (!isValid || gateway.startsWith("fe80:")) return [];
    if (subnets.some((subnet) => !isOutside({ path, gateway, subnet }))) return [];
    return [{
      source: plugin.source,
      path: pathIn(plugin, memberPath(path, findKey(node, "gw")!)),
      message: `gateway ${gateway} of this route is outside ${subnets.join(", ")}`,
      suggestion: "name an address of a subnet",
      severity: "error" as const,
    }];
  });
}
