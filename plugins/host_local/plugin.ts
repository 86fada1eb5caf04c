import type { PluginModel } from "../lib/model/plugin_model.ts";
import { type Ip, ipOf, prefixLengthOf, toCidr } from "../../ffi/address.ts";
import { inDirectory } from "../../ffi/sys/directory.ts";
import { readText } from "../../ffi/sys/file.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import { modifiedSince } from "../../ffi/sys/mtime.ts";
import { allocate, type Allocation, exhaustedError } from "./allocate.ts";
import {
  addressesHeldBy,
  type HeldAddress,
  type Inventory,
  listHeldAddresses,
  readInventory,
  validHolderFilter,
} from "./inventory.ts";
import { describeHolder } from "../lib/model/reservations.ts";
import { findEarlierBootAddresses, isOfEarlierBoot } from "./recovery.ts";
import { capacityOf, findRangeOf, type RangeSet } from "../lib/model/address_ranges.ts";
import { checkFailedError } from "../lib/protocol/check_failed.ts";
import { parseResolvConf } from "../../spec/resolv_conf.ts";
import {
  type DataDirConfig,
  dataDirConfig,
  hostLocalConfigSchema,
  parseHostLocalConfig,
  parseRequestedIps,
} from "./config.ts";
import { isNetworkDirectory, lockStore, prepareReservation, requireWritableReservations } from "./reservation_store.ts";
import { type AddCall, type AttachmentCall, type CheckCall, plugin, type PluginCall } from "../lib/protocol/plugin.ts";
import type { Attachment, PluginConfig } from "../../spec/plugin_config.ts";
import { CniError, Code, ConfigError } from "../../spec/error.ts";
import { findKey, isJsonObject, type JsonObject } from "../../spec/schema.ts";

export default plugin<DataDirConfig>({
  name: "host-local",
  about: "Assigns addresses from ranges that only this host uses",
  config: { ...dataDirConfig, inner: hostLocalConfigSchema },
  model: (): PluginModel => require("./model.ts").default,
  args: ["IP"],
  ignoresNetns: true,

  validate: ({ pluginConfig }) => void readRangeSets(pluginConfig),

  add(call) {
    const { pluginConfig, log, undo, containerId, ifname } = call;
    const { sets, routes, resolvConf } = parseHostLocalConfig(pluginConfig);
    requireRanges(sets);
    const dns = resolvConf === undefined ? undefined : parseResolvConf(readText(resolvConf));
    const choices = reserveAddresses(call, sets, parseRequestedIps(pluginConfig, call.args.IP));
    undo.defer(() => {
      using store = lockStore(networkDirectory(call), log, { onDirectory: log });
      const addresses = choices.map(({ address }) => address);
      store.release(
        store.findByAttachment({ containerId, ifname }).filter(({ address }) => addresses.includes(address)),
      );
    });
    return {
      ips: choices.map(({ address, range: { subnet, gateway } }) => ({
        address: toCidr(address, prefixLengthOf(subnet)),
        gateway,
      })),
      ...(routes.length > 0 && { routes }),
      ...(dns && { dns }),
    };
  },

  del(call) {
    releaseAttachments([call]);
  },

  delBatch(calls) {
    releaseAttachments(calls);
    return [];
  },

  check: checkReservation,

  gc(call) {
    const directory = networkDirectory(call);
    if (!isNetworkDirectory(directory, call.log)) return;
    using store = lockStore(directory, call.log, { onDirectory: call.log });
    const isValid = validHolderFilter(call.validAttachments);
    const isNewer = modifiedSince(call.snapshotTime);
    // A newer reservation cannot be on the list. The clock of an earlier boot may have been ahead.
    const isOlder = (held: HeldAddress) =>
      isOfEarlierBoot(held) || !isNewer(findStat(`${directory}/${held.address}`)?.mtime ?? 0n);
    const stale = listHeldAddresses(store.list()).filter((held) => !isValid(held) && isOlder(held));
    store.release(stale);
    for (const { address, holder } of stale) {
      call.log(`Removed the reservation of ${address} by ${describeHolder(holder)}`);
    }
  },

  status(call) {
    const sets = readRangeSets(call.pluginConfig);
    const directory = networkDirectory(call);
    const { requireWritableState } = loadWritableState();
    requireWritableState("reserve addresses", directory);
    if (findStat(directory, false)) {
      requireWritableState("reserve addresses", directory, requireWritableReservations);
    }
    const inventory = readInventory(directory);
    for (const set of sets) requireFreeAddress(set, directory, inventory);
  },
});

function releaseAttachments(calls: readonly [AttachmentCall<DataDirConfig>, ...AttachmentCall<DataDirConfig>[]]): void {
  const [first] = calls;
  const directory = networkDirectory(first);
  if (!isNetworkDirectory(directory, first.log)) return;
  using store = lockStore(directory, first.log, { onDirectory: first.log });
  store.release(calls.flatMap((call) => store.findByAttachment(call)));
}

/** Reads those of the configuration: only ADD gets the runtime's. */
function readRangeSets(pluginConfig: PluginConfig): readonly RangeSet[] {
  const { sets } = parseHostLocalConfig(pluginConfig);
  if (!hasIpRangesCapability(pluginConfig.raw)) requireRanges(sets);
  return sets;
}

function requireRanges(sets: readonly RangeSet[]): void {
  if (sets.length === 0) throw new ConfigError("ipam.ranges", "a list of at least one range set", "nothing");
}

function hasIpRangesCapability(raw: JsonObject): boolean {
  const capabilities = raw[findKey(raw, "capabilities") ?? ""];
  return isJsonObject(capabilities) && capabilities.ipRanges === true;
}

function networkDirectory({ config, pluginConfig }: PluginCall<DataDirConfig>): string {
  return `${config.ipam.dataDir}/${pluginConfig.name}`;
}

/** Reserves one address per set. Slow steps precede the lock. */
function reserveAddresses(
  call: AddCall<DataDirConfig>,
  sets: readonly RangeSet[],
  requested: readonly Ip[],
): Allocation[] {
  const directory = networkDirectory(call);
  const attachment = { containerId: call.containerId, ifname: call.ifname };
  using reservation = inDirectory(directory, 0o700, () => prepareReservation(directory, attachment));
  using store = lockStore(directory, call.log);
  const choices = store.allocateWith(() => {
    refuseSecondAdd(call, sets, store.findByAttachment(call).map(({ address }) => address));
    return allocate(sets, requested, store);
  });
  store.reserve(reservation, choices.map(({ address }) => address));
  return choices;
}

/** SPEC §ADD allows one ADD per attachment. After two, the first DEL would release the addresses of both. */
function refuseSecondAdd(attachment: Attachment, sets: readonly RangeSet[], held: readonly Ip[]): void {
  const address = held.find((ip) => sets.some((set) => findRangeOf(set, ip)));
  if (address === undefined) return;
  throw new CniError(
    Code.Internal,
    `Cannot allocate an address: ${describeHolder(attachment)} holds ${address} already`,
    { details: "run DEL before another ADD of the same attachment" },
  );
}

function checkReservation(call: CheckCall<DataDirConfig>): void {
  const { prevResult, pluginConfig } = call;
  const directory = networkDirectory(call);
  const held = addressesHeldBy(readInventory(directory), call);
  const who = describeHolder({ containerId: call.containerId, ifname: call.ifname });
  if (held.length === 0) {
    throw checkFailedError(`${who} holds no address in "${directory}"`);
  }
  if (!prevResult) return;
  const reported = (prevResult.ips ?? []).map(({ address }) => ipOf(address));
  const unreported = held.find((ip) => !reported.includes(ip));
  if (unreported !== undefined) {
    throw checkFailedError(`prevResult lacks address ${unreported}, which ${who} holds`);
  }
  // prevResult may have addresses of other networks or IPAM plugins.
  const { sets } = parseHostLocalConfig(pluginConfig);
  const unreserved = reported.find((ip) => !held.includes(ip) && sets.some((set) => findRangeOf(set, ip)));
  if (unreserved !== undefined) {
    throw checkFailedError(`address ${unreserved} of prevResult is not reserved for ${who}`);
  }
}

/** @throws {CniError} code 50 if all addresses are reserved in this boot */
function requireFreeAddress(set: RangeSet, directory: string, inventory: Inventory): void {
  const capacity = capacityOf(set);
  const isAllocatable = (address: Ip) => (findRangeOf(set, address)?.gateway ?? address) !== address;
  if (BigInt(inventory.holders.size) < capacity) return;
  const used = [...inventory.holders.keys()].filter(isAllocatable).length;
  if (
    BigInt(used) < capacity ||
    findEarlierBootAddresses(directory, inventory).some(({ address }) => isAllocatable(address))
  ) return;
  throw exhaustedError(Code.NotAvailable, set);
}

/** Only STATUS needs it: not loaded at start-up. */
function loadWritableState(): typeof import("../lib/protocol/writable_state.ts") {
  return require("../lib/protocol/writable_state.ts");
}
