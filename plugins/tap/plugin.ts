/** The `tap` plugin: an interface for a program, such as one that runs virtual machines. */
import type { Netns } from "../../ffi/netns/netns.ts";
import { tun } from "../../ffi/route/link_kinds.ts";
import * as link from "../../ffi/route/link.ts";
import { createTap, persistTap, TUN_DEVICE } from "../../ffi/route/tap.ts";
import { IFF_TAP } from "../../ffi/route/uapi.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import { expectLink } from "../lib/links/expect_link.ts";
import { interfaceExistsError, removeLinkIfPresent } from "../lib/links/container_link.ts";
import { expectEqual } from "../lib/protocol/check_failed.ts";
import { formatAlias } from "../lib/model/owner.ts";
import { type AddCall, plugin } from "../lib/protocol/plugin.ts";
import {
  attachInterface,
  checkAttachedInterface,
  detachInterface,
  detachInterfaces,
} from "../lib/links/single_interface.ts";
import { CniError, Code } from "../../spec/error.ts";
import { type TapConfig, tapConfig } from "./config.ts";
import { requestedMac } from "../lib/links/requested_mac.ts";
import { createLabelledTap } from "./labelled_tap.ts";

const LOAD_DRIVER = "load the driver: modprobe tun";

/** The kernel's kind of taps and tuns. */
const KIND = "tun";

export default plugin({
  name: "tap",
  about: "Gives the container a tap, an interface for a program",
  config: tapConfig,
  args: ["MAC"],

  add(call) {
    const { config, netns, ifname, owner, undo, args } = call;
    const { runtimeConfig, mac: configuredMac } = config;
    const mac = requestedMac(
      { ...runtimeConfig && { runtimeConfig }, ...configuredMac && { mac: configuredMac } },
      args,
    );
    const bridge = config.bridge === undefined ? undefined : getBridge(netns, config.bridge);
    createDevice(call);
    undo.defer(() => void removeLinkIfPresent(netns, ifname));
    link.set(netns.route, ifname, {
      alias: formatAlias(owner),
      ...config.mtu ? { mtu: config.mtu } : {},
      ...mac ? { mac } : {},
      ...bridge ? { master: bridge.index } : {},
    });
    // No duplicate address detection: nobody is at the other end yet.
    return attachInterface(call, link.get(netns.route, ifname), true);
  },

  del: (call) => detachInterface(call, KIND),

  delBatch: (calls, ipam) => detachInterfaces(calls, ipam, KIND),

  check(call) {
    const { config, netns, ifname } = call;
    const device = checkAttachedInterface(call, "tap");
    expectEqual(`kind of "${ifname}"`, device.info?.kind, KIND);
    const tap = tun.of(device)!;
    expectEqual(`type of "${ifname}"`, tap.type === IFF_TAP ? "tap" : "tun", "tap");
    expectEqual(`multiple queues of "${ifname}"`, (tap.multiQueue ?? 0) !== 0, config.multiQueue);
    // If not configured, the program that opens the tap may set them: TUNSETOWNER, TUNSETGROUP.
    if (config.owner !== undefined) expectEqual(`owner of "${ifname}"`, tap.owner, config.owner);
    if (config.group !== undefined) expectEqual(`group of "${ifname}"`, tap.group, config.group);
    if (config.mtu) expectEqual(`MTU of "${ifname}"`, device.mtu, config.mtu);
    if (config.bridge) expectLink(`bridge of "${ifname}"`, netns, device.master, getBridge(netns, config.bridge));
  },

  status({ ipam }) {
    if (!findStat(TUN_DEVICE)) {
      throw new CniError(Code.NotAvailable, `Cannot create taps: "${TUN_DEVICE}" is missing`, { details: LOAD_DRIVER });
    }
    ipam?.status();
  },
});

function createDevice({ config, netns, ifname }: AddCall<TapConfig>): void {
  const { multiQueue, owner, group, selinuxContext } = config;
  const options = { multiQueue, ...owner !== undefined && { owner }, ...group !== undefined && { group } };
  if (link.find(netns.route, ifname)) throw interfaceExistsError(ifname, netns);
  try {
    netns.run(() => {
      if (selinuxContext) return createLabelledTap(selinuxContext, { name: ifname, ...options });
      using tap = createTap(ifname, options);
      persistTap(tap);
    });
  } catch (error) {
    throw error instanceof SystemError ? explainTapError(error, ifname, netns) : error;
  }
}

function explainTapError(error: SystemError, ifname: string, netns: Netns): Error {
  if (error.code === "EBUSY") return interfaceExistsError(ifname, netns);
  const isMissing = error.syscall === "open" && ["ENOENT", "ENODEV", "ENXIO"].includes(error.code);
  return isMissing ? new CniError(Code.Internal, error.message, { details: LOAD_DRIVER, cause: error }) : error;
}

function getBridge(netns: Netns, name: string): link.Link {
  const found = link.find(netns.route, name);
  if (found?.info?.kind === "bridge") return found;
  throw new CniError(
    Code.InvalidConfig,
    found ? `Cannot use "${name}" as a bridge: it is none` : `Cannot find bridge "${name}" in "${netns.path}"`,
    { details: "make the bridge in the container before the tap" },
  );
}
