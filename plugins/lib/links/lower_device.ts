/**
 * The link that a plugin's links stand on: which one that is, and how one is put on it for a container.
 *
 * @module
 */
import { type Mac, prefixLengthOf } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns.ts";
import { NetlinkError } from "../../../ffi/netlink/error.ts";
import * as link from "../../../ffi/route/link.ts";
import { findNsid } from "../../../ffi/route/nsid.ts";
import * as route from "../../../ffi/route/route.ts";
import { AF_INET, AF_INET6, RT_TABLE_MAIN } from "../../../ffi/route/uapi.ts";
import { CniError, Code, ConfigError } from "../../../spec/error.ts";
import { boolean, int, satisfying, type Schema, string, withDefault } from "../../../spec/schema.ts";
import { expectEqual, removeIfPresent } from "./interface.ts";
import { describeUser, type LinkUser, listUsers } from "./upper_device.ts";
import { explainKind, interfaceExists } from "./container_link.ts";
import { formatAlias } from "../protocol/owner.ts";
import type { AddCall, Call, CheckCall } from "../protocol/plugin.ts";
import { checkAttached } from "./single_interface.ts";

/** What the configurations of these plugins have in common. */
export interface MasterConfig {
  /** Name of the link; empty for that of the default route. */
  readonly master: string;
  /** Of the container's link, in bytes; 0 for the master's. */
  readonly mtu: number;
  /** The master is one of the container's links and not of the host's. */
  readonly linkInContainer: boolean;
}

/** The keys of {@linkcode MasterConfig}. */
export function masterKeys(): { readonly [K in keyof MasterConfig]: Schema<MasterConfig[K]> } {
  return {
    // The kernel keeps 127 bytes of an alternative name.
    master: withDefault(
      satisfying(string, "the name of an interface", (name) => !name.includes("\0") && utf8Length(name) <= 127),
      "",
    ),
    mtu: withDefault(int({ min: 0, max: 0x7fff_ffff }), 0),
    linkInContainer: withDefault(boolean, false),
  };
}

const utf8Length = (text: string): number => new TextEncoder().encode(text).length;

/** The link that others stand on. */
export interface Master {
  readonly netns: Netns;
  readonly link: link.Link;
  /** The one that was named, if that is of the same kind and stands on this one itself: the kernel makes siblings of the two. */
  readonly named?: Master;
}

/** The master in the words of an error message. */
export function nameOf({ link: { name } }: Master): string {
  return `"${name}"`;
}

/**
 * The link that the configuration names, or that packets of the default route leave by.
 *
 * @param kind of the link that is to stand on it
 * @throws {ConfigError} if there is none
 */
export function getMaster(
  { host, netns, config }: AddCall<MasterConfig>,
  kind: string,
  name: string = config.master,
): Master {
  const master = findMaster(config.linkInContainer ? netns : host, config, name);
  if (config.mtu <= (master.link.mtu ?? 0)) return throughKind(master, host, kind);
  throw new ConfigError("mtu", `at most ${master.link.mtu}, the MTU of its master ${nameOf(master)}`, `${config.mtu}`);
}

/** Kinds that never stand on one another, see macvlan_common_newlink and ipvlan_link_new. */
const FLAT_KINDS = ["ipvlan", "macvlan"];

/** What the kernel puts a link of this kind on that is to stand on `master`. */
function throughKind(master: Master, host: Netns, kind = ""): Master {
  const { netns, link: { info, parent, parentNetns } } = master;
  if (info?.kind !== kind || parent === undefined || !FLAT_KINDS.includes(kind)) return master;
  const home = parentNetns === undefined ? netns : findNsid(netns.route, host.fd) === parentNetns ? host : undefined;
  const below = home && link.find(home.route, parent);
  return below ? { netns: home, link: below, named: master } : master;
}

function findMaster(netns: Netns, { linkInContainer }: MasterConfig, name: string): Master {
  const place = linkInContainer ? "container" : "host";
  const found = name === "" ? findDefault(netns) : link.find(netns.route, name);
  if (found) return { netns, link: found };
  throw name === ""
    ? new ConfigError("master", `given, since the ${place} has no default route that would tell it`, "nothing")
    : new ConfigError("master", `an interface of the ${place}`, JSON.stringify(name));
}

/** By the default route with the lowest metric, IPv4 first. */
function findDefault(netns: Netns): link.Link | undefined {
  for (const family of [AF_INET, AF_INET6]) {
    const [best] = route.list(netns.route, family, RT_TABLE_MAIN)
      .filter(({ dst, oif }) => prefixLengthOf(dst) === 0 && oif !== undefined)
      .sort((a, b) => (a.priority ?? 0) - (b.priority ?? 0));
    const found = best && link.find(netns.route, best.oif!);
    if (found) return found;
  }
  return undefined;
}

/** Makes sure that an ADD would find its master, as far as that can be told without the container. @throws {CniError} code 50 */
export function requireMaster({ host, config }: Call<MasterConfig>): void {
  if (config.linkInContainer) return;
  try {
    findMaster(host, config, config.master);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new CniError(Code.NotAvailable, error.message, { cause: error });
  }
}

/** A link to put on a master. */
export interface OnMaster {
  readonly info: { readonly kind: string; readonly data: Uint8Array };
  readonly mac?: Mac | undefined;
  /** Whether another link on the same master may be what is in the way. */
  conflictsWith(other: link.Link): boolean;
}

/**
 * Creates the container's link where it will live and writes down whose it is; it goes again if the ADD fails.
 *
 * @throws {CniError} if the name is taken, or something else has the master, which is named
 * @throws {NetlinkError}
 */
export function createOnMaster(call: AddCall<MasterConfig>, master: Master, spec: OnMaster): link.Link {
  const { netns, ifname, config: { mtu }, owner, undo } = call;
  try {
    link.add(master.netns.route, {
      name: ifname,
      parent: master.link.index,
      ...master.netns.identity === netns.identity ? {} : { netnsFd: netns.fd },
      ...mtu ? { mtu } : {},
      ...spec.mac ? { mac: spec.mac } : {},
      info: spec.info,
    });
  } catch (error) {
    throw error instanceof NetlinkError ? explain(error, call, master, spec) : error;
  }
  undo.defer(() => void removeIfPresent(netns, ifname));
  const created = link.get(netns.route, ifname);
  // A link that has its master's address for itself takes another one only when it is there.
  const mac = spec.mac && created.mac !== spec.mac ? { mac: spec.mac } : {};
  link.set(netns.route, created.index, { alias: formatAlias(owner), ...mac });
  return spec.mac ? { ...created, mac: spec.mac } : created;
}

/** The refusal, with what is in the way. */
function explain(
  error: NetlinkError,
  { netns, ifname }: AddCall<MasterConfig>,
  master: Master,
  { info, conflictsWith }: OnMaster,
): Error {
  if (error.code === "EEXIST" && link.find(netns.route, ifname)) return interfaceExists(ifname, netns);
  const refusal = error.forPurpose(`create "${ifname}" on master ${nameOf(master)}`);
  // Of an MTU that the kernel does not take, it says so, and nobody else is to blame.
  const isAlone = error.kernel?.startsWith("mtu ") || !["EEXIST", "EBUSY", "EINVAL", "EADDRINUSE"].includes(error.code);
  if (isAlone) return explainKind(refusal, info.kind);
  return usedBy(refusal, master, (other) => conflictsWith(other.link));
}

/** The refusal, naming those users of a master whom `isRival` picks; as it is if there are none. */
export function usedBy(refusal: NetlinkError, master: Master, isRival: (user: LinkUser) => boolean): Error {
  const { netns, link: { index, master: over } } = master;
  const port = over === undefined ? undefined : link.find(netns.route, over);
  const users = [
    ...port ? [`${port.info?.kind ?? "link"} "${port.name}", of which it is a port`] : [],
    ...listUsers(netns, index).filter(isRival).map(describeUser),
  ];
  if (users.length === 0) return refusal;
  const shown = users.length > 5 ? [...users.slice(0, 5), `${users.length - 5} more`] : users;
  return new CniError(Code.Internal, `${refusal.message}: ${nameOf(master)} is used by ${shown.join(", ")}`, {
    cause: refusal,
  });
}

/**
 * Compares the container's link with what ADD left, and with the configuration: kind, master, MTU, state, addresses and routes.
 *
 * @throws {CniError} on the first difference
 */
export function checkOnMaster(call: CheckCall<MasterConfig>, type: string): link.Link {
  const { ifname, config } = call;
  const device = checkAttached(call, type);
  expectEqual(`kind of "${ifname}"`, device.info?.kind, type);
  expectEqual(`administrative state of "${ifname}"`, link.isUp(device) ? "up" : "down", "up");
  checkMaster(call, device);
  if (config.mtu) expectEqual(`MTU of "${ifname}"`, device.mtu, config.mtu);
  return device;
}

function checkMaster(
  { host, netns, config: { master, linkInContainer }, ifname }: CheckCall<MasterConfig>,
  device: link.Link,
): void {
  const isLocal = device.parentNetns === undefined;
  const place = isLocal ? netns : host;
  const actual = device.parent ? link.find(place.route, device.parent) : undefined;
  const home = linkInContainer ? netns : host;
  const named = master === "" ? undefined : link.find(home.route, master);
  const wanted = named && throughKind({ netns: home, link: named }, host, device.info?.kind);
  // Which link a default route told of at the time of the ADD, nothing says.
  if (master === "" && actual) return;
  if (wanted && isLocal === (wanted.netns.identity === netns.identity) && wanted.link.index === device.parent) return;
  const where = linkInContainer ? "container" : "host";
  const found = actual && isLocal === (home.identity === netns.identity) ? `"${actual.name}"` : "elsewhere";
  throw new CniError(
    Code.Internal,
    named
      ? `Check failed: master of "${ifname}" is ${found}, expected "${named.name}"`
      : `Check failed: the ${where} has no master ${master && `"${master}" `}for "${ifname}"`,
  );
}
