import { type Ip, ipOf } from "../../ffi/address.ts";
import * as link from "../../ffi/route/link.ts";
import { type AttachmentCall, requirePrevResult } from "../lib/protocol/plugin.ts";
import type { JsonObject } from "../../spec/schema.ts";
import type { Result } from "../../spec/result.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { CniError, Code } from "../../spec/error.ts";
import { type FirewallConfig, firewallConfigSchema } from "./config.ts";
import type { IngressRestriction } from "./ingress_policy.ts";

export type FirewallCall = AttachmentCall<JsonObject>;
export interface FirewallRequest {
  readonly config: FirewallConfig;
  readonly result: Result;
  readonly addresses: readonly Ip[];
  readonly restriction?: IngressRestriction;
}

export function readRequest(call: FirewallCall): FirewallRequest {
  const config = firewallConfigSchema.parse(call.config);
  const result = requirePrevResult(call, "firewall");
  const { ingressPolicy: policy } = config;
  const restriction = policy === "open"
    ? {}
    : { restriction: { policy, ...findBridgeAndPorts(call.host, result, policy) } };
  return { config, result, addresses: reportedAddresses(result), ...restriction };
}

export function reportedAddresses({ ips = [] }: Result): Ip[] {
  return [...new Set(ips.map(({ address }) => ipOf(address)))];
}

function hostInterfaceNames({ interfaces = [] }: Result): string[] {
  return interfaces.filter(({ sandbox }) => !sandbox).map(({ name }) => name);
}

function findBridgeAndPorts(host: Netns, result: Result, policy: string): Omit<IngressRestriction, "policy"> {
  const names = hostInterfaceNames(result);
  const links = names.flatMap((name) => link.find(host.route, name) ?? []);
  const bridge = links.find(({ info }) => info?.kind === "bridge");
  // Plugins such as ptp have no bridge, only a link per container.
  const bridgeName = bridge?.name ?? names[0];
  if (bridgeName !== undefined) {
    return {
      bridge: bridgeName,
      ports: links.filter(({ master }) => master !== undefined).map(({ name = "" }) => name),
    };
  }
  throw new CniError(
    Code.InvalidConfig,
    `Cannot use ingressPolicy "${policy}": prevResult names no interface of the host`,
    {
      details: `"firewall" changes what an earlier plugin of the list set up: put it after one such as "bridge"`,
    },
  );
}
