import { type Cidr, containsIp, familyOf, type Ip, networkOf, parseCidr, parseIp } from "../../../ffi/address.ts";
import { isGateway } from "../../../plugins/bridge/config.ts";
import { findKey, findValue, isJsonObject, memberPath } from "../../../spec/schema.ts";
import { bridgeConfigOf } from "../bridges.ts";
import { attempt, type LintPlugin, pathIn } from "../lint_file.ts";
import { configuredRanges } from "../ranges.ts";
import type { LintRule } from "../rule.ts";

export const gatewayOutsideSubnetRule: LintRule = {
  name: "gateway-outside-subnet",
  severity: "warning",
  about:
    "A gateway that is no address of its subnet, so containers cannot reach it. With `isGateway` it is an error: `bridge` refuses it.",
  bad: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.1.0",
  "name": "web",
  "plugins": [{
    "type": "bridge",
    "isGateway": true,
    "ipam": {
      "type": "host-local",
      "ranges": [[{ "subnet": "10.30.0.0/24", "gateway": "10.31.0.1" }]]
    }
  }]
}`,
    },
    finds: ["10-web.conflist:9:58 gateway 10.31.0.1 is outside its subnet 10.30.0.0/24"],
  },
  good: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.1.0",
  "name": "web",
  "plugins": [{
    "type": "bridge",
    "isGateway": true,
    "ipam": {
      "type": "host-local",
      "ranges": [[{ "subnet": "10.30.0.0/24", "gateway": "10.30.0.1" }]]
    }
  }]
}`,
    },
  },
  find: ({ plugins }) =>
    plugins.flatMap((plugin) => {
      const config = bridgeConfigOf(plugin);
      const isRefused = config !== undefined && isGateway(config);
      return [...rangeGateways(plugin), ...staticGateways(plugin)].filter(isOutside).map(
        ({ path, gateway, subnet }) => ({
          source: plugin.source,
          path,
          message: `gateway ${gateway} is outside its subnet ${subnet}`,
          suggestion: `name an address of ${subnet}`,
          ...isRefused && { severity: "error" as const },
        }),
      );
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
  return configuredRanges(plugin).filter(({ hasGateway }) => hasGateway).map(({ gatewayPath, range }) => ({
    path: gatewayPath,
    gateway: range.gateway,
    subnet: range.subnet,
  }));
}

function staticGateways(plugin: LintPlugin): ConfiguredGateway[] {
  const ipamKey = findKey(plugin.raw, "ipam") ?? "ipam";
  const ipam = plugin.raw[ipamKey];
  const addresses = plugin.ipamType === "static" && isJsonObject(ipam) ? findValue(ipam, "addresses") : undefined;
  if (!isJsonObject(ipam) || !Array.isArray(addresses)) return [];
  const listPath = memberPath(ipamKey, findKey(ipam, "addresses")!);
  return addresses.flatMap((node: unknown, i) => {
    if (!isJsonObject(node)) return [];
    const gateway = attempt(() => parseIp(String(findValue(node, "gateway"))));
    const subnet = attempt(() => networkOf(parseCidr(String(findValue(node, "address")))));
    if (!gateway || !subnet) return [];
    const path = pathIn(plugin, memberPath(`${listPath}[${i}]`, findKey(node, "gateway")!));
    return [{ path, gateway, subnet }];
  });
}
