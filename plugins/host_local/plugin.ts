/**
 * The `host-local` plugin: gives addresses out of ranges, and remembers in files on this host who has which.
 *
 * @module
 */
import { cidr, type Ip, ipOf, prefixLengthOf } from "../../ffi/address.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { ensureDirectory, requireWritable } from "../../ffi/sys/directory.ts";
import { readText } from "../../ffi/sys/file.ts";
import { findStatus } from "../../ffi/sys/stat.ts";
import { writtenSince } from "../../ffi/sys/mtime.ts";
import { allocate, type Choice } from "./allocate.ts";
import { addressesOf, describeHolder, heldOf, type Inventory, readInventory, survivors } from "./inventory.ts";
import { findEarlier, tellsEarlier } from "./recovery.ts";
import { capacityOf, findRange, formatRanges, type RangeSet } from "./ranges.ts";
import { parseResolvConf } from "./resolv_conf.ts";
import { hostLocalKeys, parseRequestedIps, parseSettings, path } from "./config.ts";
import { hasDirectory, lockStore, prepareReservation, tryReservation } from "./reservation_store.ts";
import { type AddCall, type Call, type CheckCall, plugin } from "../lib/protocol/plugin.ts";
import type { Attachment } from "../../spec/plugin_config.ts";
import { CniError, Code, ConfigError } from "../../spec/error.ts";
import { findKey, isJsonObject, type JsonObject, lazy, struct, withDefault } from "../../spec/schema.ts";

const DEFAULT_DATA_DIR = "/var/lib/cni/networks";

/** Only what every command needs. The rest is read by those that need it: DEL must work when the ranges are wrong by now. */
interface Config {
  readonly ipam: { readonly dataDir: string };
}
const parts = lazy(() =>
  struct({
    ipam: withDefault(struct({ dataDir: withDefault(path, DEFAULT_DATA_DIR) }), {
      dataDir: DEFAULT_DATA_DIR,
    }),
  })
);

export default plugin<Config>({
  name: "host-local",
  about: "Gives addresses out of ranges that this host has to itself",
  config: { ...parts, inner: hostLocalKeys },
  args: ["IP"],
  ignoresNetns: true,

  add(call) {
    const { request, log, undo, containerId, ifname } = call;
    const { sets, routes, resolvConf } = parseSettings(request);
    requireRanges(sets);
    const dns = resolvConf === undefined ? undefined : parseResolvConf(readText(resolvConf));
    const choices = reserve(call, sets, parseRequestedIps(request, call.args.IP));
    undo.defer(() => {
      using store = lockStore(directoryOf(call), log);
      const chosen = choices.map(({ address }) => address);
      store.release(store.findHeld({ containerId, ifname }).filter(({ address }) => chosen.includes(address)));
    });
    return {
      ips: choices.map(({ address, range: { subnet, gateway } }) => ({
        address: cidr(address, prefixLengthOf(subnet)),
        gateway,
      })),
      ...(routes.length > 0 && { routes }),
      ...(dns && { dns }),
    };
  },

  del(call) {
    const directory = directoryOf(call);
    if (!hasDirectory(directory, call.log)) return;
    using store = lockStore(directory, call.log);
    store.release(store.findHeld(call));
  },

  delMany(calls) {
    const directory = directoryOf(calls[0]);
    if (!hasDirectory(directory, calls[0].log)) return [];
    using store = lockStore(directory, calls[0].log);
    store.release(calls.flatMap((call) => store.findHeld(call)));
    return [];
  },

  check: checkReservation,

  gc(call) {
    const directory = directoryOf(call);
    if (!hasDirectory(directory, call.log)) return;
    using store = lockStore(directory, call.log);
    const lives = survivors(call.valid);
    const inventory = store.list();
    const isEarlier = tellsEarlier(inventory);
    const isYoung = writtenSince(call.madeAt);
    // Whoever came after the list of the living was made cannot be on it; the clock of an earlier boot may have been ahead.
    const isOld = (address: Ip) =>
      isEarlier(address) || !isYoung(findStatus(`${directory}/${address}`)?.modified ?? 0n);
    store.release(heldOf(inventory).filter((held) => !lives(held) && isOld(held.address)));
  },

  status(call) {
    const { sets } = parseSettings(call.request);
    // Only an ADD is told the ranges that its runtime gives.
    if (!givenByRuntime(call.request.raw)) requireRanges(sets);
    const directory = directoryOf(call);
    try {
      // Only ADD makes something: a network that is asked about need not be one that comes to be.
      if (findStatus(directory, false)) tryReservation(directory);
      else requireWritable(directory);
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      throw new CniError(Code.NotAvailable, `Cannot reserve addresses: ${error.message}`, { cause: error });
    }
    const inventory = readInventory(directory);
    for (const set of sets) expectFree(set, directory, inventory);
  },
});

function requireRanges(sets: readonly RangeSet[]): void {
  if (sets.length === 0) throw new ConfigError("ipam.ranges", "a list of at least one range set", "nothing");
}

function givenByRuntime(raw: JsonObject): boolean {
  const declared = raw[findKey(raw, "capabilities") ?? ""];
  return isJsonObject(declared) && declared.ipRanges === true;
}

function directoryOf({ config, request }: Call<Config>): string {
  return `${config.ipam.dataDir}/${request.name}`;
}

/** Reserves one address per set. Everything that takes time happens before the lock is taken. */
function reserve(call: AddCall<Config>, sets: readonly RangeSet[], requested: readonly Ip[]): Choice[] {
  const directory = directoryOf(call);
  ensureDirectory(directory, 0o700);
  using reservation = prepareReservation(directory, { containerId: call.containerId, ifname: call.ifname });
  using store = lockStore(directory, call.log);
  const choices = store.decide(() => {
    refuseSecond(call, sets, store.findHeld(call).map(({ address }) => address));
    return allocate(sets, requested, store);
  });
  store.reserve(reservation, choices.map(({ address }) => address));
  return choices;
}

/** An attachment is made once (SPEC §ADD); a second one would give the first one's DEL two addresses to release. */
function refuseSecond(attachment: Attachment, sets: readonly RangeSet[], held: readonly Ip[]): void {
  const address = held.find((each) => sets.some((set) => findRange(set, each)));
  if (address === undefined) return;
  throw new CniError(
    Code.Internal,
    `Cannot allocate an address: ${describeHolder(attachment)} holds ${address} already`,
    { details: "an attachment is added once; delete it before it is added again" },
  );
}

function checkReservation(call: CheckCall<Config>): void {
  const { prevResult, request } = call;
  const directory = directoryOf(call);
  const held = addressesOf(readInventory(directory), call);
  const who = describeHolder({ containerId: call.containerId, ifname: call.ifname });
  if (held.length === 0) {
    throw new CniError(Code.Internal, `Check failed: ${who} holds no address in "${directory}"`);
  }
  if (!prevResult) return;
  const reported = (prevResult.ips ?? []).map(({ address }) => ipOf(address));
  const lacking = held.find((each) => !reported.includes(each));
  if (lacking !== undefined) {
    throw new CniError(Code.Internal, `Check failed: prevResult lacks address ${lacking}, which ${who} holds`);
  }
  // Addresses of other networks and other IPAM plugins are not ours to judge.
  const { sets } = parseSettings(request);
  const lost = reported.find((each) => !held.includes(each) && sets.some((set) => findRange(set, each)));
  if (lost !== undefined) {
    throw new CniError(Code.Internal, `Check failed: address ${lost} of prevResult is not reserved for ${who}`);
  }
}

/** @throws {CniError} code 50 if the set has no address left, and none that an ADD would reclaim */
function expectFree(set: RangeSet, directory: string, inventory: Inventory): void {
  const capacity = capacityOf(set);
  const isOf = (address: Ip) => (findRange(set, address)?.gateway ?? address) !== address;
  if (BigInt(inventory.holders.size) < capacity) return;
  const used = [...inventory.holders.keys()].filter(isOf).length;
  if (BigInt(used) < capacity || findEarlier(directory, inventory).some(({ address }) => isOf(address))) return;
  throw new CniError(
    Code.NotAvailable,
    `Cannot allocate an address: all ${capacity} addresses of range set ${formatRanges(set.ranges)} are in use`,
  );
}
