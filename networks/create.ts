import { type Cidr, familyOf } from "../ffi/address.ts";
import { currentNetns, type Netns } from "../ffi/netns/netns.ts";
import * as link from "../ffi/route/link.ts";
import { createFile } from "../ffi/sys/atomic_file.ts";
import { ensureDirectory, findEntryNames } from "../ffi/sys/directory.ts";
import { lockTemporaryFile } from "../ffi/sys/lock.ts";
import { findPlugin } from "../plugins/registry.ts";
import { isDnsName } from "../spec/dns_name.ts";
import { networkNameProblem } from "../spec/env.ts";
import { CniError, Code } from "../spec/error.ts";
import { stringifyJson } from "../spec/jsonc.ts";
import { derivePluginConfig, type NetworkConfigList, parseNetworkConfigList } from "../spec/network_config_list.ts";
import { findValue, type JsonObject } from "../spec/schema.ts";
import { suggestion } from "../spec/suggest.ts";
import { DEFAULT_NETWORK, DEFAULT_NETWORK_NAME } from "../runtime/default_network.ts";
import { isConfFileName } from "../runtime/load.ts";
import type { Runtime } from "../runtime/runtime.ts";
import { driverKeysOf } from "./driver_options.ts";
import { chooseFileName } from "./file_name.ts";
import { findNameIn, type NetworkFile, readNetworkFiles } from "./network_files.ts";
import { domainOf, hasOwnSubnet, networkDocument, type NetworkRequest, NetworkRequestError } from "./new_network.ts";
import { refuseUsedRanges } from "./shared_parent.ts";
import {
  chooseSubnet,
  findSubnetUse,
  nameServers,
  subnetsOfConfiguration,
  subnetsOfHost,
  subnetsOfNetworks,
  type SubnetUse,
} from "./subnets.ts";

/** Another program may create a network at the same time. */
const LOCK_TIMEOUT_MS = 10_000;

/** What `cni network create --json` prints. */
export interface CreatedNetwork {
  readonly name: string;
  readonly file: string;
  readonly configuration: JsonObject;
}

/**
 * Writes the configuration of a new network. Until a container is attached, it changes nothing else.
 *
 * @throws {NetworkRequestError} if the request contradicts itself
 * @throws {CniError} if its name, or a subnet that it asks for, is in use
 * @throws {SystemError} if the file cannot be written
 */
export function createNetwork(runtime: Runtime, directory: string, request: NetworkRequest): CreatedNetwork {
  refuseContradictoryRequest(request);
  const keys = driverKeysOf(request.driver, request.options);
  ensureDirectory(directory);
  // Everybody who can read the directory could hold a lock of the directory itself.
  using _lock = lockTemporaryFile(`${directory}/.create.lock`, { timeoutMs: LOCK_TIMEOUT_MS });
  using host = currentNetns();
  const files = readNetworkFiles(directory);
  refuseUsedName(request.name, files);
  const subnets = chooseSubnets(request, () => listSubnetUses(runtime, host, files));
  refuseMissingParent(host, keys.driver);
  const bridge = request.driver === "bridge" ? chooseBridge(host, { ...request, ...keys.driver }, files) : undefined;
  refuseSmallMtu(keys.driver["mtu"] ?? request.mtu, subnets);
  refuseOtherKind(host, keys.driver["bridge"]);
  const configuration = networkDocument(request, { subnets, bridge, ...keys });
  const file = `${directory}/${chooseFileName(request.name, (findEntryNames(directory) ?? []).filter(isConfFileName))}`;
  const text = networkFileText(configuration);
  const list = parseNetworkConfigList(text, file);
  refuseUnusable(list);
  refuseUsedRanges(host, list, files);
  // Other users' engines read the directory too.
  if (createFile(file, text, 0o644)) return { name: request.name, file, configuration };
  throw new CniError(Code.InvalidConfig, `Cannot create network "${request.name}": "${file}" exists`);
}

export function networkFileText(configuration: JsonObject): string {
  return `${stringifyJson(configuration, 2)}\n`;
}

function refuseContradictoryRequest(request: NetworkRequest): void {
  const { name, driver, subnets, gateways, ipv6, internal, vlan } = request;
  const problem = networkNameProblem(name);
  if (problem !== undefined) throw new NetworkRequestError(`the name ${problem}`);
  for (const family of [4, 6]) {
    const ofFamily = subnets.filter((subnet) => familyOf(subnet) === family);
    if (ofFamily.length > 1) {
      throw new NetworkRequestError(`a network has one subnet of IPv${family}: got ${ofFamily.join(" and ")}`);
    }
  }
  if (internal && gateways.length > 0) throw new NetworkRequestError("an internal network has no gateway");
  if (request.dns) refuseImpossibleDns(request);
  if (vlan !== undefined && driver !== "bridge") {
    throw new NetworkRequestError(`driver "${driver}" has no VLANs of its own: use driver bridge, or a VLAN interface`);
  }
  if (hasOwnSubnet(driver)) return;
  if (subnets.length === 0) {
    throw new NetworkRequestError(`driver "${driver}" needs --subnet, the subnet of the network that it is on`);
  }
  if (ipv6 && subnets.every((subnet) => familyOf(subnet) === 4)) {
    throw new NetworkRequestError(`driver "${driver}" needs --subnet with an IPv6 subnet for --ipv6`);
  }
}

/** Containers ask at the address that the host has in the network. */
function refuseImpossibleDns({ name, driver, internal }: NetworkRequest): void {
  if (!hasOwnSubnet(driver)) throw new NetworkRequestError(`--dns needs driver bridge or ptp: got "${driver}"`);
  if (internal) throw new NetworkRequestError("--dns needs a gateway, which an internal network has not");
  const domain = domainOf(name);
  if (!isDnsName(domain)) throw new NetworkRequestError(`--dns needs a name for DNS: "${domain}" is none`);
}

function refuseUsedName(name: string, files: readonly NetworkFile[]): void {
  const present = files.find((file) => findNameIn(file) === name);
  if (!present && name !== DEFAULT_NETWORK_NAME) return;
  const place = present ? `it is in "${present.file}"` : "it is built in";
  throw new CniError(Code.InvalidConfig, `Cannot create network "${name}": there is one of this name, ${place}`, {
    details: "choose another name",
  });
}

function chooseSubnets(
  { driver, subnets: requested, ipv6 }: NetworkRequest,
  listUses: () => SubnetUse[],
): readonly Cidr[] {
  if (!hasOwnSubnet(driver)) return requested;
  const uses = listUses();
  for (const subnet of requested) refuseUsedSubnet(subnet, uses);
  const hasFamily = (family: 4 | 6) => requested.some((subnet) => familyOf(subnet) === family);
  const avoided = [...uses, ...nameServers()];
  return [
    ...requested,
    ...requested.length === 0 ? [chooseSubnet(4, avoided)] : [],
    ...ipv6 && !hasFamily(6) ? [chooseSubnet(6, avoided)] : [],
  ];
}

function refuseUsedSubnet(subnet: Cidr, uses: readonly SubnetUse[]): void {
  const use = findSubnetUse(subnet, uses);
  if (!use) return;
  const same = use.subnet === subnet ? "" : ` ${use.subnet} of`;
  throw new CniError(Code.InvalidConfig, `Cannot use subnet ${subnet}: it is in use by${same} ${use.user}`, {
    details: "name another one, or leave out --subnet for one that is free",
  });
}

function listSubnetUses(runtime: Runtime, host: Netns, files: readonly NetworkFile[]): SubnetUse[] {
  const isConfigured = files.some(({ list }) => list?.name === DEFAULT_NETWORK_NAME);
  const builtIn = isConfigured ? [] : subnetsOfConfiguration(parseNetworkConfigList(DEFAULT_NETWORK));
  return [
    ...subnetsOfNetworks(files, runtime.attachments()),
    ...builtIn.map((subnet) => ({ subnet, user: `the built-in network "${DEFAULT_NETWORK_NAME}"` })),
    ...subnetsOfHost(host),
  ];
}

/** `cni-NAME` if that is free and short enough for an interface, else `cni1` and so on. */
function chooseBridge(host: Netns, { name, vlan }: NetworkRequest, files: readonly NetworkFile[]): string {
  const taken = new Set([
    ...link.list(host.route).map((device) => device.name),
    ...files.flatMap(({ list }) => list?.plugins.map(({ raw }) => findValue(raw, "bridge")) ?? []),
  ]);
  const fits = (bridge: string) => (vlan === undefined ? bridge : `${bridge}.${vlan}`).length <= 15;
  const own = `cni-${name}`;
  if (fits(own) && !taken.has(own)) return own;
  for (let number = 1;; number++) if (!taken.has(`cni${number}`)) return `cni${number}`;
}

function refuseMissingParent(host: Netns, { master }: JsonObject): void {
  if (typeof master !== "string" || link.find(host.route, master)) return;
  const names = link.list(host.route).flatMap(({ name }) => name ?? []);
  throw new CniError(
    Code.InvalidConfig,
    `Cannot use parent "${master}": the host has no such interface${suggestion(master, names)}`,
  );
}

/** The kernel turns a family off on links with less. 0 is the kernel's choice. */
function refuseSmallMtu(mtu: unknown, subnets: readonly Cidr[]): void {
  const [family, least] = subnets.some((subnet) => familyOf(subnet) === 6) ? ["IPv6", 1280] : ["IPv4", 68];
  if (typeof mtu !== "number" || mtu === 0 || mtu >= least) return;
  throw new NetworkRequestError(`an MTU of ${mtu} is too small: ${family} needs ${least} bytes or more`);
}

/** A bridge that is missing is created by the first ADD. */
function refuseOtherKind(host: Netns, bridge: unknown): void {
  const device = typeof bridge === "string" ? link.find(host.route, bridge) : undefined;
  if (!device || device.info?.kind === "bridge") return;
  const kind = device.info?.kind ?? "device";
  throw new CniError(Code.InvalidConfig, `Cannot use "${device.name}" as a bridge: it is a link of kind ${kind}`, {
    details: "choose another name, or leave it out",
  });
}

/** @throws {ConfigError} what the plugins would say at the first ADD */
function refuseUnusable(list: NetworkConfigList): void {
  for (const entry of list.plugins) {
    const pluginConfig = derivePluginConfig(list, entry, { command: "ADD" });
    for (const type of [entry.type, entry.ipamType ?? entry.type]) {
      const plugin = findPlugin(type);
      const config: unknown = plugin?.config.parse(pluginConfig.raw);
      plugin?.validate?.({ config, pluginConfig });
    }
  }
}
