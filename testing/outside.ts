/**
 * A host and a machine outside, which knows of no network but the one that it shares with the host:
 *
 * ```
 * outside, eth0: 192.0.2.2, 2001:db8::2 ── up0: 192.0.2.1, 2001:db8::1, host
 * ```
 *
 * @module
 */
import type { Netns } from "../ffi/netns/netns.ts";
import { runShellInNetns, WITHOUT_DAD } from "./netns.ts";

/** Connects a namespace to another, which plays the machine outside. */
export function connectOutside(host: Netns, outside: Netns): void {
  runShellInNetns(
    host,
    WITHOUT_DAD,
    "ip link set lo up",
    `ip link add up0 type veth peer name eth0 netns ${outside.path}`,
    "ip addr add 192.0.2.1/24 dev up0; ip addr add 2001:db8::1/64 dev up0 nodad; ip link set up0 up",
  );
  runShellInNetns(
    outside,
    WITHOUT_DAD,
    "ip link set lo up",
    "ip addr add 192.0.2.2/24 dev eth0; ip addr add 2001:db8::2/64 dev eth0 nodad; ip link set eth0 up",
  );
}
