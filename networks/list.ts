import type { AddressPool } from "../plugins/lib/model/reservations.ts";
import { findStat } from "../ffi/sys/stat.ts";
import { CniError } from "../spec/error.ts";
import { type NetworkConfigList, parseNetworkConfigList } from "../spec/network_config_list.ts";
import type { Cidr } from "../ffi/address.ts";
import type { NetworkAttachment } from "../runtime/attachments.ts";
import { DEFAULT_NETWORK, DEFAULT_NETWORK_NAME } from "../runtime/default_network.ts";
import type { Runtime } from "../runtime/runtime.ts";
import { type ConfiguredNetwork, type NetworkFile, readNetworkFiles } from "./network_files.ts";
import { subnetsOfConfiguration } from "./subnets.ts";
import { reservationsOf } from "./reservations.ts";

type Log = (message: string) => void;

interface ListMessages {
  readonly log: Log;
  readonly problem: Log;
}

/** One network, as `cni network ls --json` prints it. */
export interface NetworkSummary {
  readonly name: string;
  readonly origin: ConfiguredNetwork["origin"];
  /** Absent for other origins than `file`. */
  readonly file?: string;
  readonly driver: string;
  readonly subnets: readonly Cidr[];
  /** The pools of host-local: a container gets one address from each. */
  readonly pools: readonly AddressPool[];
  readonly attachments: number;
}

/** Sorted by name. Files that are no networks are problems. */
export function listNetworks(
  runtime: Runtime,
  directory: string,
  attachments: readonly NetworkAttachment[],
  { log, problem }: ListMessages,
): NetworkSummary[] {
  if (!findStat(directory)) log(`There is no directory "${directory}", so no network is configured`);
  const attachmentsOf = Map.groupBy(attachments, ({ network }) => network);
  return findNetworks(runtime, directory, attachments, log, problem)
    .map((network) => summarizeNetwork(network, attachmentsOf.get(network.list.name) ?? [], problem));
}

/** Of files, the built-in one, and those that only attachments remember, sorted by name. */
export function findNetworks(
  runtime: Runtime,
  directory: string,
  attachments: readonly NetworkAttachment[],
  log: Log,
  problem: Log = log,
): ConfiguredNetwork[] {
  const networks = new Map<string, ConfiguredNetwork>();
  for (const file of readNetworkFiles(directory)) addFile(networks, file, { log, problem });
  for (const attachment of attachments) {
    const { network } = attachment;
    if (networks.has(network) || network === DEFAULT_NETWORK_NAME) continue;
    const list = tryParse(runtime.attachedConfiguration(network, attachment), problem);
    if (list) networks.set(network, { list, origin: "attachment" });
  }
  if (!networks.has(DEFAULT_NETWORK_NAME)) {
    networks.set(DEFAULT_NETWORK_NAME, { list: parseNetworkConfigList(DEFAULT_NETWORK), origin: "built-in" });
  }
  return [...networks.values()].sort((a, b) => a.list.name < b.list.name ? -1 : 1);
}

function addFile(
  networks: Map<string, ConfiguredNetwork>,
  { file, list, problem }: NetworkFile,
  messages: ListMessages,
): void {
  if (!list) return messages.problem(`Ignoring configuration file "${file}": ${problem}`);
  const first = networks.get(list.name);
  if (!first) networks.set(list.name, { list, origin: "file", file });
  else messages.log(`network "${list.name}" is in two files: "${first.file}" is used, and "${file}" is not`);
}

function tryParse(text: string | undefined, log: Log): NetworkConfigList | undefined {
  try {
    return text === undefined ? undefined : parseNetworkConfigList(text);
  } catch (error) {
    log(CniError.from(error).message);
    return undefined;
  }
}

export function summarizeNetwork(
  { list, origin, file }: ConfiguredNetwork,
  attachments: readonly NetworkAttachment[],
  log: Log,
): NetworkSummary {
  return {
    name: list.name,
    origin,
    ...file !== undefined && { file },
    driver: list.plugins[0]!.type,
    subnets: subnetsOfConfiguration(list),
    pools: tryReadPools(list, log),
    attachments: attachments.length,
  };
}

/** A mistake in one network must not hide the others. */
function tryReadPools(list: NetworkConfigList, log: Log): readonly AddressPool[] {
  try {
    return reservationsOf(list).flatMap((reservations) => reservations.pools());
  } catch (error) {
    const { message, details } = CniError.from(error);
    log(`network "${list.name}": ${message}${details ? ` (${details})` : ""}`);
    return [];
  }
}
