import {
  broadcastOf,
  type Cidr,
  containsIp,
  familyOf,
  type Ip,
  ipOf,
  networkOf,
  nextIp,
  prefixLengthOf,
  previousIp,
} from "../ffi/address.ts";
import { CniError, Code } from "../spec/error.ts";
import type { JsonObject } from "../spec/schema.ts";

/** Plugins that a network can begin with. */
export const NETWORK_DRIVERS = ["bridge", "macvlan", "ipvlan", "ptp"] as const;
export type NetworkDriver = (typeof NETWORK_DRIVERS)[number];

export interface NetworkRequest {
  readonly name: string;
  readonly driver: NetworkDriver;
  /** Has at most one of a family. */
  readonly subnets: readonly Cidr[];
  readonly gateways: readonly Ip[];
  /** Parts of the subnets that containers get addresses from. */
  readonly ipRanges: readonly Cidr[];
  readonly ipv6: boolean;
  /** Neither gateway nor default route. */
  readonly internal: boolean;
  /** Containers find each other by name. */
  readonly dns: boolean;
  readonly mtu?: number;
  readonly vlan?: number;
  /** Further keys of the driver's plugin, as text. */
  readonly options: ReadonlyMap<string, string>;
}

export class NetworkRequestError extends CniError {
  constructor(message: string) {
    super(Code.InvalidConfig, message);
  }
}

/** podman 4 and containerd 1 read the first alone. With the others, newer engines use GC and STATUS. */
const VERSION_KEYS = { cniVersion: "1.0.0", cniVersions: ["1.0.0", "1.1.0"] };

/** A key that plugins and engines ignore: `prune` removes only what `create` made. */
export const CREATOR_KEY = "x-created-by";
export const CREATOR = "cni network create";

/** Whether the driver makes a subnet of its own. The others use one of the lower device's network. */
export function hasOwnSubnet(driver: NetworkDriver): boolean {
  return driver === "bridge" || driver === "ptp";
}

interface NetworkChoices {
  /** Has at most one of a family. */
  readonly subnets: readonly Cidr[];
  readonly bridge: string | undefined;
  /** Keys of `--option`, which win. */
  readonly driver: JsonObject;
  readonly firewall: JsonObject;
}

/** @throws {NetworkRequestError} if a gateway or range is in no subnet */
export function networkDocument(request: NetworkRequest, choices: NetworkChoices): JsonObject {
  const { name, driver, internal, dns } = request;
  const { subnets, bridge } = choices;
  const ranges = rangesOf(request, subnets);
  const routes = internal ? [] : subnets.map((subnet) => ({ dst: familyOf(subnet) === 4 ? "0.0.0.0/0" : "::/0" }));
  const ipam = { type: "host-local", ranges, ...routes.length > 0 && { routes } };
  const isPublished = hasOwnSubnet(driver) && !internal;
  return {
    ...VERSION_KEYS,
    name,
    [CREATOR_KEY]: CREATOR,
    plugins: [
      {
        type: driver,
        ...bridge !== undefined && { bridge },
        ...driverKeys(request),
        ...choices.driver,
        capabilities: { ips: true, ...macCapability(driver) },
        ipam,
      },
      ...isPublished ? [{ type: "portmap", capabilities: { portMappings: true } }] : [],
      ...hasOwnSubnet(driver) ? [{ type: "firewall", ...choices.firewall }] : [],
      ...dns ? [{ type: "dnsname", domainName: domainOf(name), capabilities: { aliases: true } }] : [],
    ],
  };
}

/** A suffix that nobody has on the Internet. */
export const domainOf = (network: string): string => `${network}.internal`;

function driverKeys({ driver, internal, mtu, vlan }: NetworkRequest): JsonObject {
  return {
    ...driver === "bridge" && { isGateway: !internal, ipMasq: !internal, hairpinMode: true },
    ...driver === "ptp" && { ipMasq: !internal },
    ...mtu !== undefined && { mtu },
    ...vlan !== undefined && { vlan },
  };
}

/** The kernel gives all links of an ipvlan device one address, and ptp takes no other. */
function macCapability(driver: NetworkDriver): JsonObject {
  return driver === "bridge" || driver === "macvlan" ? { mac: true } : {};
}

function rangesOf({ gateways, ipRanges }: NetworkRequest, subnets: readonly Cidr[]): JsonObject[][] {
  const stray = [...gateways, ...ipRanges.map(ipOf)].find((ip) => !subnets.some((subnet) => containsIp(subnet, ip)));
  if (stray !== undefined) throw new NetworkRequestError(`Cannot use ${stray}: it is outside ${subnets.join(" and ")}`);
  return subnets.map((subnet) => {
    const gateway = gateways.find((ip) => containsIp(subnet, ip));
    const range = ipRanges.find((part) => containsIp(subnet, ipOf(part)));
    return [{ subnet, ...range !== undefined && limitsOf(range, subnet), ...gateway !== undefined && { gateway } }];
  });
}

/** Leaves out the addresses of the network itself. @throws {NetworkRequestError} */
function limitsOf(range: Cidr, subnet: Cidr): { readonly rangeStart: Ip; readonly rangeEnd: Ip } {
  if (prefixLengthOf(range) < prefixLengthOf(subnet)) {
    throw new NetworkRequestError(`Cannot use the range ${range}: it is larger than ${subnet}`);
  }
  const [first, last] = [ipOf(networkOf(range)), broadcastOf(range)];
  const isBroadcast = familyOf(range) === 4 && last === broadcastOf(subnet);
  return {
    rangeStart: first === ipOf(subnet) ? nextIp(first)! : first,
    rangeEnd: isBroadcast ? previousIp(last)! : last,
  };
}
