import type { Netns } from "../../../ffi/netns/netns.ts";
import * as link from "../../../ffi/route/link.ts";
import { SystemError } from "../../../ffi/sys/error.ts";
import { ensureSysctl, findSysctl, sysctlWord } from "../../../ffi/sys/sysctl.ts";
import { CniError, Code } from "../../../spec/error.ts";

/** The kernel has no IPv6 on links with a smaller MTU: linux/ipv6.h, RFC 8200 §5. */
export const IPV6_MIN_MTU = 1280;

/** Call it inside `netns`. @throws {CniError} code 7 if the MTU is too small */
export function enableIpv6(netns: Netns, ifname: string): void {
  const name = `net/ipv6/conf/${ifname}/disable_ipv6`;
  const value = findSysctl(name);
  if (value === "1") requireSysctl(name, "0");
  if (value !== undefined) return;
  const mtu = link.find(netns.route, ifname)?.mtu ?? IPV6_MIN_MTU;
  // The kernel has no IPv6 at all, and will say so.
  if (mtu >= IPV6_MIN_MTU) return;
  throw new CniError(
    Code.InvalidConfig,
    `Cannot give "${ifname}" an IPv6 address: its MTU must be at least ${IPV6_MIN_MTU} for IPv6, got ${mtu}`,
    {
      details: `set "mtu" to ${IPV6_MIN_MTU} or more (a bridge has the least of its ports), or use only IPv4 addresses`,
    },
  );
}

/** Call it inside the namespace. @param beforeChange called only if there is one @throws {CniError} */
export function requireSysctl(name: string, value: string, beforeChange = () => {}): void {
  try {
    ensureSysctl(name, value, beforeChange);
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    const actual = JSON.stringify(findSysctl(name) ?? "absent");
    const message = `Cannot set kernel parameter ${sysctlWord(name)} to ${value}: ${error.message}`;
    throw new CniError(Code.Internal, message, {
      details: `it is ${actual} now; set it on the host before, or make /proc/sys writable here`,
      cause: error,
    });
  }
}

/** A container must not become the host's router. */
export const disableRouterAdvertisements = (ifname: string) => ({ [`net/ipv6/conf/${ifname}/accept_ra`]: "0" });

/** During duplicate address detection, the host resolves no addresses and drops packets. */
export const skipDuplicateDetection = (ifname: string) => ({ [`net/ipv6/conf/${ifname}/accept_dad`]: "0" });

/**
 * Sets optional kernel parameters; call it inside the namespace.
 *
 * @param log gets one message for all that cannot be set
 */
export function trySysctls(sysctls: Readonly<Record<string, string>>, log: (message: string) => void): void {
  const failed = Object.entries(sysctls).flatMap(([name, value]) => {
    try {
      ensureSysctl(name, value);
      return [];
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      return error.code === "ENOENT" ? [] : [{ setting: `${name} to ${value}`, message: error.message }];
    }
  });
  if (failed.length === 0) return;
  log(`Cannot set ${failed.map(({ setting }) => setting).join(", ")}, continuing without: ${failed[0]!.message}`);
}
