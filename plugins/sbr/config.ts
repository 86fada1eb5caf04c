import { containerIps } from "../lib/links/container_ips.ts";
import { familyOf } from "../../ffi/address.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { IpConfig, Result } from "../../spec/result.ts";
import {
  array,
  boolean,
  type Infer,
  int,
  ipAddress,
  lazy,
  object,
  optional,
  refine,
  withDefault,
} from "../../spec/schema.ts";

export const sbrConfig = lazy(() =>
  object({
    /** The administrator fills this table, so only rules are added. */
    table: optional(int({ min: 1, max: 0xffff_ffff })),
    gateways: withDefault(
      refine(
        array(ipAddress),
        "a list of at most one IPv4 and one IPv6 address",
        (addresses) => new Set(addresses.map(familyOf)).size === addresses.length,
      ),
      [],
    ),
    addSourceHints: withDefault(boolean, false),
  })
);

export type SbrConfig = Infer<typeof sbrConfig>;

export function requireContainerIps(result: Result, ifname: string): IpConfig[] {
  const ips = containerIps(result, ifname);
  if (ips.length > 0) return ips;
  throw new CniError(Code.InvalidConfig, `Cannot run "sbr": prevResult has no address on "${ifname}"`, {
    details: 'put "sbr" behind a plugin that gives an address',
  });
}
