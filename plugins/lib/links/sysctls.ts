/**
 * Kernel parameters: those that a network needs, and those that it can do without.
 *
 * @module
 */
import type { Netns } from "../../../ffi/netns.ts";
import * as link from "../../../ffi/route/link.ts";
import { SystemError } from "../../../ffi/sys/error.ts";
import { ensureSysctl, findSysctl } from "../../../ffi/sysctl.ts";
import { CniError, Code } from "../../../spec/error.ts";

/** The smallest MTU with which the kernel has IPv6 on a link: IPV6_MIN_MTU of linux/ipv6.h, RFC 8200 §5. */
const IPV6_MIN_MTU = 1280;

/**
 * Lets an interface have IPv6 addresses, as where the administrator has switched IPv6 off by default; call it inside `netns`.
 *
 * @throws {CniError} code 7 where its MTU is too small for IPv6
 */
export function enableIpv6(netns: Netns, ifname: string): void {
  const name = `net/ipv6/conf/${ifname}/disable_ipv6`;
  const value = findSysctl(name);
  if (value === "1") requireSysctl(name, "0");
  if (value !== undefined) return;
  const mtu = link.find(netns.route, ifname)?.mtu ?? IPV6_MIN_MTU;
  // The kernel has no IPv6 at all, then, which it says itself.
  if (mtu >= IPV6_MIN_MTU) return;
  throw new CniError(
    Code.InvalidConfig,
    `Cannot give "${ifname}" an IPv6 address: its MTU must be at least ${IPV6_MIN_MTU} for IPv6, got ${mtu}`,
    {
      details:
        `set "mtu" to ${IPV6_MIN_MTU} or more (a bridge has the least of its ports), or have IPAM give IPv4 addresses alone`,
    },
  );
}

/** Sets a kernel parameter that the network cannot do without; call it inside the namespace. @throws {CniError} naming it and the value it needs */
export function requireSysctl(name: string, value: string): void {
  try {
    ensureSysctl(name, value);
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    throw new CniError(
      Code.Internal,
      `Cannot set kernel parameter ${name.replaceAll("/", ".")} to ${value}: ${error.message}`,
      {
        details: `it is ${
          JSON.stringify(findSysctl(name) ?? "absent")
        } now; set it on the host before, or make /proc/sys writable here`,
        cause: error,
      },
    );
  }
}

/** What makes an interface deaf to router advertisements: a container must not make the host its router's client. */
export const disableRouterAdvertisements = (ifname: string): Sysctls => ({
  [`net/ipv6/conf/${ifname}/accept_ra`]: "0",
});

/**
 * What makes an interface use IPv6 addresses at once. While it looks for duplicates of its link-local one, the host can ask for nobody's
 * hardware address there, and drops what it is to forward.
 */
export const skipDuplicateDetection = (ifname: string): Sysctls => ({
  [`net/ipv6/conf/${ifname}/accept_dad`]: "0",
});

/** Kernel parameters and the values that they should have. */
export type Sysctls = Readonly<Record<string, string>>;

/** Sets kernel parameters that the network can do without; call it inside the namespace. @param log told once of all that cannot be set */
export function trySysctls(sysctls: Sysctls, log: Log): void {
  const failed = Object.entries(sysctls).flatMap(([name, value]) => {
    try {
      ensureSysctl(name, value);
      return [];
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      return error.code === "ENOENT" ? [] : [{ what: `${name} to ${value}`, error }];
    }
  });
  const [first] = failed;
  if (first) {
    log(
      `Cannot set ${failed.map(({ what: setting }) => setting).join(", ")}, continuing without: ${first.error.message}`,
    );
  }
}

type Log = (message: string) => void;

/** Lets the host forward packets of these families. @throws {CniError} if the parameter is off and cannot be set */
export function enableForwarding(host: Netns, families: readonly (4 | 6)[]): void {
  host.run(() => {
    if (families.includes(4)) requireSysctl("net/ipv4/ip_forward", "1");
    if (families.includes(6)) requireSysctl("net/ipv6/conf/all/forwarding", "1");
  });
}
