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
import { RT_TABLE_MAIN } from "../../../ffi/route/uapi.ts";
import { AF_INET, AF_INET6 } from "../../../ffi/sys/uapi.ts";
import { CniError, Code, ConfigError } from "../../../spec/error.ts";
import { boolean, int, refine, type Schema, string, withDefault } from "../../../spec/schema.ts";
import { explainUnsupportedKind, interfaceExistsError, removeLinkIfPresent } from "./container_link.ts";
import { checkFailedError, expectEqual } from "../protocol/check_failed.ts";
import { describeUpperDevice, listUpperDevices, type UpperDevice } from "./upper_device.ts";
import { formatAlias } from "../protocol/owner.ts";
import type { AddCall, CheckCall, DiagnoseCall, PluginCall } from "../protocol/plugin.ts";
import { checkAttachedInterface } from "./single_interface.ts";

/** What the configurations of these plugins have in common. */
export interface LowerDeviceConfig {
  /** Name of the link; empty for that of the default route. */
  readonly master: string;
  /** Of the container's link, in bytes; 0 for the master's. */
  readonly mtu: number;
  /** The master is one of the container's links and not of the host's. */
  readonly linkInContainer: boolean;
}

/** The keys of {@linkcode LowerDeviceConfig}. */
export function lowerDeviceKeys(): { readonly [K in keyof LowerDeviceConfig]: Schema<LowerDeviceConfig[K]> } {
  return {
    // The kernel keeps 127 bytes of an alternative name.
    master: withDefault(
      refine(string, "the name of an interface", (name) => !name.includes("\0") && utf8Length(name) <= 127),
      "",
    ),
    mtu: withDefault(int({ min: 0, max: 0x7fff_ffff }), 0),
    linkInContainer: withDefault(boolean, false),
  };
}

const utf8Length = (text: string): number => new TextEncoder().encode(text).length;

/** The link that others stand on. */
export interface LowerDevice {
  readonly netns: Netns;
  readonly link: link.Link;
  /** The one that was named, if that is of the same kind and stands on this one itself: the kernel makes siblings of the two. */
  readonly configured?: LowerDevice;
}

/** The master in the words of an error message. */
export function quotedName({ link: { name } }: LowerDevice): string {
  return `"${name}"`;
}

/**
 * The link that the configuration names, or that packets of the default route leave by.
 *
 * @param kind of the link that is to stand on it
 * @throws {ConfigError} if there is none
 */
export function getLowerDevice(
  { host, netns, config }: AddCall<LowerDeviceConfig>,
  kind: string,
  name: string = config.master,
): LowerDevice {
  const lower = findLowerDevice(config.linkInContainer ? netns : host, config, name);
  requireMtuWithin(lower, config);
  return resolveNonStacking(lower, host, kind);
}

function requireMtuWithin(lower: LowerDevice, { mtu }: LowerDeviceConfig): void {
  if (mtu <= (lower.link.mtu ?? 0)) return;
  throw new ConfigError("mtu", `at most ${lower.link.mtu}, the MTU of its master ${quotedName(lower)}`, `${mtu}`);
}

/** Kinds that never stand on one another, see macvlan_common_newlink and ipvlan_link_new. */
const NON_STACKING_KINDS = ["ipvlan", "macvlan"];

/** What the kernel puts a link of this kind on that is to stand on `master`. */
function resolveNonStacking(lower: LowerDevice, host: Netns, kind = ""): LowerDevice {
  if (lower.link.info?.kind !== kind || !NON_STACKING_KINDS.includes(kind)) return lower;
  const found = findDeviceBelow(lower, host);
  return found ? { ...found, configured: lower } : lower;
}

/** What a link stands on, if that is in the link's own namespace or in the host's. */
function findDeviceBelow(
  { netns, link: { linkIndex, linkNetnsId } }: Pick<LowerDevice, "netns" | "link">,
  host: Netns,
): LowerDevice | undefined {
  if (linkIndex === undefined) return undefined;
  const lowerNetns = linkNetnsId === undefined
    ? netns
    : findNsid(netns.route, host.fd) === linkNetnsId
    ? host
    : undefined;
  const lowerLink = lowerNetns && link.find(lowerNetns.route, linkIndex);
  return lowerLink && { netns: lowerNetns, link: lowerLink };
}

function findLowerDevice(netns: Netns, { linkInContainer }: LowerDeviceConfig, name: string): LowerDevice {
  const side = linkInContainer ? "container" : "host";
  const found = findMaster(netns, name);
  if (found) return { netns, link: found };
  throw name === ""
    ? new ConfigError("master", `given, since the ${side} has no default route that would tell it`, "nothing")
    : new ConfigError("master", `an interface of the ${side}`, JSON.stringify(name));
}

function findMaster(netns: Netns, name: string): link.Link | undefined {
  return name === "" ? findDefaultRouteDevice(netns) : link.find(netns.route, name);
}

/** By the default route with the lowest metric, IPv4 first. */
function findDefaultRouteDevice(netns: Netns): link.Link | undefined {
  for (const family of [AF_INET, AF_INET6]) {
    const [bestRoute] = route.list(netns.route, family, RT_TABLE_MAIN)
      .filter(({ dst, oif }) => prefixLengthOf(dst) === 0 && oif !== undefined)
      .sort((a, b) => (a.priority ?? 0) - (b.priority ?? 0));
    const found = bestRoute && link.find(netns.route, bestRoute.oif!);
    if (found) return found;
  }
  return undefined;
}

/** Makes sure that an ADD would find its master, as far as that can be told without the container. @throws {CniError} code 50 */
export function requireLowerDevice({ host, config }: PluginCall<LowerDeviceConfig>): void {
  if (config.linkInContainer) return;
  try {
    requireMtuWithin(findLowerDevice(host, config, config.master), config);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new CniError(Code.NotAvailable, error.message, { cause: error });
  }
}

/** A link to put on a master. */
export interface UpperDeviceSpec {
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
export function createUpperDevice(
  call: AddCall<LowerDeviceConfig>,
  lower: LowerDevice,
  spec: UpperDeviceSpec,
): link.Link {
  const { netns, ifname, config: { mtu }, owner, undo } = call;
  try {
    link.add(lower.netns.route, {
      name: ifname,
      linkIndex: lower.link.index,
      ...lower.netns.identity === netns.identity ? {} : { netnsFd: netns.fd },
      ...mtu ? { mtu } : {},
      ...spec.mac ? { mac: spec.mac } : {},
      info: spec.info,
    });
  } catch (error) {
    throw error instanceof NetlinkError ? explainCreateError(error, call, lower, spec) : error;
  }
  undo.defer(() => void removeLinkIfPresent(netns, ifname));
  const created = link.get(netns.route, ifname);
  // A link that has its master's address for itself takes another one only when it is there.
  const mac = spec.mac && created.mac !== spec.mac ? { mac: spec.mac } : {};
  link.set(netns.route, created.index, { alias: formatAlias(owner), ...mac });
  return spec.mac ? { ...created, mac: spec.mac } : created;
}

/** The refusal, with what is in the way. */
function explainCreateError(
  error: NetlinkError,
  { netns, ifname }: AddCall<LowerDeviceConfig>,
  lower: LowerDevice,
  { info, conflictsWith }: UpperDeviceSpec,
): Error {
  if (error.code === "EEXIST" && link.find(netns.route, ifname)) return interfaceExistsError(ifname, netns);
  const refusal = error.withPurpose(`create "${ifname}" on master ${quotedName(lower)}`);
  // Of an MTU that the kernel does not take, it says so, and nobody else is to blame.
  const isOwnFault = error.extack?.startsWith("mtu ") ||
    !["EEXIST", "EBUSY", "EINVAL", "EADDRINUSE"].includes(error.code);
  if (isOwnFault) return explainUnsupportedKind(refusal, info.kind);
  return lowerDeviceInUseError(refusal, lower, (candidate) => conflictsWith(candidate.link));
}

/** The refusal, naming those users of a master whom `isRival` picks; as it is if there are none. */
export function lowerDeviceInUseError(
  refusal: NetlinkError,
  lower: LowerDevice,
  isConflicting: (user: UpperDevice) => boolean,
): Error {
  const { netns, link: { index, master: masterIndex } } = lower;
  const masterLink = masterIndex === undefined ? undefined : link.find(netns.route, masterIndex);
  const userNames = [
    ...masterLink ? [`${masterLink.info?.kind ?? "link"} "${masterLink.name}", of which it is a port`] : [],
    ...listUpperDevices(netns, index).filter(isConflicting).map(describeUpperDevice),
  ];
  if (userNames.length === 0) return refusal;
  const shown = userNames.length > 5 ? [...userNames.slice(0, 5), `${userNames.length - 5} more`] : userNames;
  return new CniError(Code.Internal, `${refusal.message}: ${quotedName(lower)} is used by ${shown.join(", ")}`, {
    cause: refusal,
  });
}

/**
 * Compares the container's link with what ADD left, and with the configuration: kind, master, MTU, state, addresses and routes.
 *
 * @throws {CniError} on the first difference
 */
export function checkUpperDevice(call: CheckCall<LowerDeviceConfig>, type: string): link.Link {
  const { ifname, config } = call;
  const device = checkAttachedInterface(call, type);
  expectEqual(`kind of "${ifname}"`, device.info?.kind, type);
  expectEqual(`administrative state of "${ifname}"`, link.isUp(device) ? "up" : "down", "up");
  checkLowerDevice(call, device);
  if (config.mtu) expectEqual(`MTU of "${ifname}"`, device.mtu, config.mtu);
  return device;
}

/** Says that nothing flows by the master. It is the administrator's: no ADD sets it up. */
function describeUnusable(master: link.Link): string[] {
  const { name } = master;
  if (!link.isUp(master)) return [`Master "${name}" is down, so that nothing flows: ip link set ${name} up`];
  return link.isRunning(master) ? [] : [`Master "${name}" has no carrier, so that nothing flows`];
}

/** What keeps packets from flowing although there is a master: that of the attachment, or the one that an ADD would take. */
export function diagnoseLowerDevice({ host, config, attachment }: DiagnoseCall<LowerDeviceConfig>): string[] {
  if (config.linkInContainer) return [];
  const master = attachment ? findAttachedMaster(host, attachment) : findMaster(host, config.master);
  return master ? describeUnusable(master) : [];
}

/** The link that the container's interface stands on, whatever the configuration or a default route names by now. */
function findAttachedMaster(
  host: Netns,
  { netns, ifname }: NonNullable<DiagnoseCall<LowerDeviceConfig>["attachment"]>,
): link.Link | undefined {
  const device = link.find(netns.route, ifname);
  return device && findDeviceBelow({ netns, link: device }, host)?.link;
}

function checkLowerDevice(
  { host, netns, config: { master, linkInContainer }, ifname }: CheckCall<LowerDeviceConfig>,
  device: link.Link,
): void {
  const isLocal = device.linkNetnsId === undefined;
  const actualNetns = isLocal ? netns : host;
  const actual = device.linkIndex ? link.find(actualNetns.route, device.linkIndex) : undefined;
  const configuredNetns = linkInContainer ? netns : host;
  const configuredLink = master === "" ? undefined : link.find(configuredNetns.route, master);
  const expected = configuredLink &&
    resolveNonStacking({ netns: configuredNetns, link: configuredLink }, host, device.info?.kind);
  // Which link a default route told of at the time of the ADD, nothing says.
  if (master === "" && actual) return;
  if (
    expected && isLocal === (expected.netns.identity === netns.identity) && expected.link.index === device.linkIndex
  ) {
    return;
  }
  const side = linkInContainer ? "container" : "host";
  const actualName = actual && isLocal === (configuredNetns.identity === netns.identity)
    ? `"${actual.name}"`
    : "elsewhere";
  throw checkFailedError(
    configuredLink
      ? `master of "${ifname}" is ${actualName}, expected "${configuredLink.name}"`
      : `the ${side} has no master ${master && `"${master}" `}for "${ifname}"`,
  );
}
