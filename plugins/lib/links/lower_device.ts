import { type Mac, prefixLengthOf } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { NetlinkError } from "../../../ffi/netlink/error.ts";
import * as link from "../../../ffi/route/link.ts";
import { findNsid } from "../../../ffi/route/nsid.ts";
import * as route from "../../../ffi/route/route.ts";
import { RT_TABLE_MAIN } from "../../../ffi/route/uapi.ts";
import { AF_INET, AF_INET6 } from "../../../ffi/sys/uapi.ts";
import { CniError, Code, ConfigError } from "../../../spec/error.ts";
import { boolean, type Infer, int, refine, string, withDefault } from "../../../spec/schema.ts";
import { explainUnsupportedKind, interfaceExistsError, randomVethName, removeLinkIfPresent } from "./container_link.ts";
import { checkFailedError, expectEqual } from "../protocol/check_failed.ts";
import { describeUpperDevice, listUpperDevices, type UpperDevice } from "./upper_device.ts";
import { formatAlias } from "../model/owner.ts";
import type { AddCall, CheckCall, DiagnoseCall, PluginCall } from "../protocol/plugin.ts";
import { checkAttachedInterface } from "./single_interface.ts";

export function lowerDeviceKeys() {
  return {
    /** Empty: the default route's device. The kernel keeps 127 bytes of an alternative name. */
    master: withDefault(
      refine(
        string,
        "the name of an interface, at most 127 bytes",
        (name) => !name.includes("\0") && utf8Length(name) <= 127,
      ),
      "",
    ),
    /** Bytes, of the container's link; 0: the lower device's. */
    mtu: withDefault(int({ min: 0, max: 0x7fff_ffff }), 0),
    linkInContainer: withDefault(boolean, false),
  };
}

const utf8Length = (text: string): number => new TextEncoder().encode(text).length;

type Keys = ReturnType<typeof lowerDeviceKeys>;
export type LowerDeviceConfig = { readonly [K in keyof Keys]: Infer<Keys[K]> };

export interface LowerDevice {
  readonly netns: Netns;
  readonly link: link.Link;
  /** The configured one, if the kernel puts the new link beside it, not on it. */
  readonly configured?: LowerDevice;
}

/**
 * The configured link, or the default route's.
 *
 * @param kind of the upper device
 * @throws {ConfigError} if it is missing, or its MTU is too small
 */
export function getLowerDevice(
  { host, netns, config }: AddCall<LowerDeviceConfig>,
  kind: string,
  name: string = config.master,
): LowerDevice {
  return resolveNonStacking(findLowerDevice(config.linkInContainer ? netns : host, config, name), host, kind);
}

/** Kinds that never stack: see macvlan_common_newlink and ipvlan_link_new. */
const NON_STACKING_KINDS = ["ipvlan", "macvlan"];

/** The link that the kernel uses if asked for `lower`. */
function resolveNonStacking(lower: LowerDevice, host: Netns, kind = ""): LowerDevice {
  if (lower.link.info?.kind !== kind || !NON_STACKING_KINDS.includes(kind)) return lower;
  const below = findDeviceBelow(lower, host);
  return below ? { ...below, configured: lower } : lower;
}

function findDeviceBelow(
  { netns, link: { linkIndex, linkNetnsId } }: LowerDevice,
  host: Netns,
): LowerDevice | undefined {
  if (linkIndex === undefined) return undefined;
  const below = linkNetnsId === undefined ? netns : host;
  if (linkNetnsId !== undefined && findNsid(netns.route, host.fd) !== linkNetnsId) return undefined;
  const found = link.find(below.route, linkIndex);
  return found && { netns: below, link: found };
}

function findLowerDevice(netns: Netns, { linkInContainer, mtu }: LowerDeviceConfig, name: string): LowerDevice {
  const side = linkInContainer ? "container" : "host";
  const found = findMaster(netns, name);
  if (!found) {
    throw name === ""
      ? new ConfigError("master", `given, since the ${side} has no default route to derive it from`, "nothing")
      : new ConfigError("master", `an interface of the ${side}`, JSON.stringify(name));
  }
  if (mtu > (found.mtu ?? 0)) {
    throw new ConfigError("mtu", `at most ${found.mtu}, the MTU of its master "${found.name}"`, `${mtu}`);
  }
  return { netns, link: found };
}

function findMaster(netns: Netns, name: string): link.Link | undefined {
  return name === "" ? findDefaultRouteDevice(netns) : link.find(netns.route, name);
}

/** The lowest metric wins, IPv4 first. */
export function findDefaultRouteDevice(netns: Netns): link.Link | undefined {
  for (const family of [AF_INET, AF_INET6]) {
    const [bestRoute] = route.list(netns.route, family, RT_TABLE_MAIN)
      .filter(({ dst, oif }) => prefixLengthOf(dst) === 0 && oif !== undefined)
      .sort((a, b) => (a.priority ?? 0) - (b.priority ?? 0));
    const found = bestRoute && link.find(netns.route, bestRoute.oif!);
    if (found) return found;
  }
  return undefined;
}

/** @throws {CniError} code 50 if an ADD would find no lower device on the host */
export function requireLowerDevice({ host, config }: PluginCall<LowerDeviceConfig>): void {
  if (config.linkInContainer) return;
  try {
    findLowerDevice(host, config, config.master);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new CniError(Code.NotAvailable, error.message, { cause: error });
  }
}

export interface UpperDeviceSpec {
  readonly info: { readonly kind: string; readonly data: Uint8Array };
  readonly mac?: Mac | undefined;
  /** Whether another link on the lower device may be in the way. */
  conflictsWith(other: link.Link): boolean;
}

/**
 * Creates the container's link with its owner as alias; a failed ADD removes it.
 *
 * @throws {CniError} if the name is taken, or naming what uses the lower device
 */
export function createUpperDevice(
  call: AddCall<LowerDeviceConfig>,
  lower: LowerDevice,
  spec: UpperDeviceSpec,
): link.Link {
  const { netns, ifname, owner, undo } = call;
  let name = addUpperDevice(call, lower, spec, ifname);
  undo.defer(() => void removeLinkIfPresent(netns, name));
  const created = link.get(netns.route, name);
  // A passthru macvlan starts with the lower device's address.
  const mac = spec.mac && created.mac !== spec.mac ? { mac: spec.mac } : {};
  link.set(netns.route, created.index, {
    ...name === ifname ? {} : { name: ifname },
    alias: formatAlias(owner),
    ...mac,
  });
  name = ifname;
  return { ...created, name, ...spec.mac ? { mac: spec.mac } : {} };
}

/** @returns `name`, or a temporary one: older kernels refuse names of links beside the lower device */
function addUpperDevice(
  call: AddCall<LowerDeviceConfig>,
  lower: LowerDevice,
  spec: UpperDeviceSpec,
  name: string,
): string {
  const { netns, ifname, config: { mtu } } = call;
  try {
    link.add(lower.netns.route, {
      name,
      linkIndex: lower.link.index,
      ...lower.netns.identity === netns.identity ? {} : { netnsFd: netns.fd },
      ...mtu ? { mtu } : {},
      ...spec.mac ? { mac: spec.mac } : {},
      info: spec.info,
    });
    return name;
  } catch (error) {
    if (!(error instanceof NetlinkError)) throw error;
    const isTakenOutside = error.code === "EEXIST" && name === ifname && !link.find(netns.route, ifname) &&
      link.find(lower.netns.route, ifname);
    if (isTakenOutside) return addUpperDevice(call, lower, spec, randomVethName());
    throw explainCreateError(error, call, lower, spec);
  }
}

function explainCreateError(
  error: NetlinkError,
  { netns, ifname }: AddCall<LowerDeviceConfig>,
  lower: LowerDevice,
  { info, conflictsWith }: UpperDeviceSpec,
): Error {
  if (error.code === "EEXIST" && link.find(netns.route, ifname)) return interfaceExistsError(ifname, netns);
  const refusal = error.withPurpose(`create "${ifname}" on master "${lower.link.name}"`);
  const mayBeConflict = ["EEXIST", "EBUSY", "EINVAL", "EADDRINUSE"].includes(error.code);
  // The kernel explains a refused MTU.
  if (!mayBeConflict || error.extack?.startsWith("mtu ")) return explainUnsupportedKind(refusal, info.kind);
  return lowerDeviceInUseError(refusal, lower, (candidate) => conflictsWith(candidate.link));
}

export function lowerDeviceInUseError(
  refusal: NetlinkError,
  { netns, link: { name, index, master: masterIndex } }: LowerDevice,
  isConflicting: (user: UpperDevice) => boolean,
): Error {
  const master = masterIndex === undefined ? undefined : link.find(netns.route, masterIndex);
  const users = [
    ...master ? [`${master.info?.kind ?? "link"} "${master.name}", of which it is a port`] : [],
    ...listUpperDevices(netns, index).filter(isConflicting).map(describeUpperDevice),
  ];
  if (users.length === 0) return refusal;
  const shown = users.length > 5 ? [...users.slice(0, 5), `${users.length - 5} more`] : users;
  return new CniError(Code.Internal, `${refusal.message}: "${name}" is used by ${shown.join(", ")}`, {
    cause: refusal,
  });
}

/** @param type the plugin's name and the link's kind */
export function checkUpperDevice(call: CheckCall<LowerDeviceConfig>, type: string): link.Link {
  const { ifname, config } = call;
  const device = checkAttachedInterface(call, type);
  expectEqual(`kind of "${ifname}"`, device.info?.kind, type);
  expectEqual(`administrative state of "${ifname}"`, link.isUp(device) ? "up" : "down", "up");
  checkLowerDevice(call, device);
  if (config.mtu) expectEqual(`MTU of "${ifname}"`, device.mtu, config.mtu);
  return device;
}

function checkLowerDevice(
  { host, netns, config: { master, linkInContainer }, ifname }: CheckCall<LowerDeviceConfig>,
  device: link.Link,
): void {
  const actualNetns = device.linkNetnsId === undefined ? netns : host;
  const actual = device.linkIndex ? link.find(actualNetns.route, device.linkIndex) : undefined;
  // Nobody knows the default route's device at the time of the ADD.
  if (master === "" && actual) return;
  const [side, configuredNetns] = linkInContainer ? ["container", netns] as const : ["host", host] as const;
  const configured = master === "" ? undefined : link.find(configuredNetns.route, master);
  if (!configured) throw checkFailedError(`the ${side} has no master ${master && `"${master}" `}for "${ifname}"`);
  const expected = resolveNonStacking({ netns: configuredNetns, link: configured }, host, device.info?.kind);
  if (expected.netns.identity === actualNetns.identity && expected.link.index === device.linkIndex) return;
  const actualName = actual && actualNetns.identity === configuredNetns.identity ? `"${actual.name}"` : "elsewhere";
  throw checkFailedError(`master of "${ifname}" is ${actualName}, expected "${configured.name}"`);
}

/** Reports a lower device that is down or has no carrier; no ADD sets it up. */
export function diagnoseLowerDevice({ host, config, attachment }: DiagnoseCall<LowerDeviceConfig>): string[] {
  if (config.linkInContainer) return [];
  const device = attachment && link.find(attachment.netns.route, attachment.ifname);
  const attached = device && findDeviceBelow({ netns: attachment.netns, link: device }, host)?.link;
  const master = attachment ? attached : findMaster(host, config.master);
  if (!master) return [];
  const { name } = master;
  if (!link.isUp(master)) return [`Master "${name}" is down, so no packets flow: ip link set ${name} up`];
  return link.isRunning(master) ? [] : [`Master "${name}" has no carrier, so no packets flow`];
}
