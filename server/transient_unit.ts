/** The server as a unit of systemd that no file describes. @module */
import { findSystemBus } from "../ffi/dbus/connection.ts";
import { type DbusValue, marshal } from "../ffi/dbus/marshal.ts";
import { EPERM } from "../ffi/sys/errno.ts";

const SYSTEMD = {
  destination: "org.freedesktop.systemd1",
  path: "/org/freedesktop/systemd1",
  interface: "org.freedesktop.systemd1.Manager",
} as const;
const UNIT = "cni.service";
const BUS_TIMEOUT_MS = 5000;

const NO_LIMIT = 2n ** 64n - 1n;
const MAX_FILES = 65_536n;
/** Numbers of linux/capability.h: those that packaging/debian/cni.service names. */
const DROPPED_CAPABILITIES = [9, 17, 20, 22, 25, 26, 28, 30, 32, 33, 34, 35, 36, 37];
const DROPPED_CALLS = ["@clock", "@cpu-emulation", "@debug", "@obsolete", "@raw-io", "@reboot", "@swap"];

/** As packaging/debian/cni.service has it, but that the next call starts it again. */
function properties(program: string): readonly (readonly [name: string, signature: string, value: DbusValue])[] {
  const capabilities = DROPPED_CAPABILITIES.reduce((kept, number) => kept & ~(1n << BigInt(number)), NO_LIMIT);
  return [
    ["Description", "s", "CNI server, which a call has started"],
    ["Documentation", "as", ["man:cni-serve(8)"]],
    // One that has failed must not be in the way of the next one.
    ["CollectMode", "s", "inactive-or-failed"],
    ["Type", "s", "notify"],
    ["ExecStart", "a(sasb)", [[program, [program, "serve", "--on-demand"], false]]],
    ["WatchdogUSec", "t", 30_000_000n],
    ["KillMode", "s", "process"],
    ["Delegate", "b", true],
    ["TasksMax", "t", NO_LIMIT],
    ["LimitNOFILE", "t", MAX_FILES],
    ["LimitNOFILESoft", "t", MAX_FILES],
    ["CapabilityBoundingSet", "t", capabilities],
    ["SystemCallFilter", "(bas)", [false, DROPPED_CALLS]],
    ["SystemCallErrorNumber", "i", EPERM],
    ["SystemCallArchitectures", "as", ["native"]],
    ["RestrictAddressFamilies", "(bas)", [true, ["AF_UNIX", "AF_NETLINK", "AF_INET", "AF_INET6", "AF_PACKET"]]],
    ["DevicePolicy", "s", "closed"],
    ["DeviceAllow", "a(ss)", [["char-misc", "rwm"]]],
    ["LockPersonality", "b", true],
    ["RestrictRealtime", "b", true],
    ["RestrictSUIDSGID", "b", true],
    ["UMask", "u", 0o077],
  ];
}

/** @throws {DbusError} if systemd refuses, as if there is such a unit */
export function startTransientUnit(program: string): void {
  using bus = findSystemBus(undefined, BUS_TIMEOUT_MS);
  const assignments = properties(program).map(([name, ...variant]) => [name, variant]);
  bus?.call({
    ...SYSTEMD,
    member: "StartTransientUnit",
    args: [UNIT],
    body: marshal("ssa(sv)a(sa(sv))", [UNIT, "fail", assignments, []]),
  });
}
