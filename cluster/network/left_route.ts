import type { Cidr, Ip } from "../../ffi/address.ts";

/** One of `ip route add`, or of a program that has gone, in the place of the cluster's own with the same gateway. */
export interface LeftRoute {
  /** As it is among the problems. */
  readonly problem: string;
  readonly dst: Cidr;
  readonly gateway: Ip;
  /** The name of its link. */
  readonly link: string;
}
