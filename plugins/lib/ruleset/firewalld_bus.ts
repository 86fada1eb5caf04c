/** firewalld, which makes its rules of what it is told over D-Bus. @see firewalld.dbus(5) */
import { BUS_OBJECT, type DbusConnection, findSystemBus } from "../../../ffi/dbus/connection.ts";

export const FIREWALLD_BUS_NAME = "org.fedoraproject.FirewallD1";
export const FIREWALLD_ZONES = {
  destination: FIREWALLD_BUS_NAME,
  path: "/org/fedoraproject/FirewallD1",
  interface: `${FIREWALLD_BUS_NAME}.zone`,
} as const;

/** `undefined` if it does not run. @param timeoutMs for each answer @throws {SystemError} if the bus does not answer */
export function findFirewalldBus(
  { DBUS_SYSTEM_BUS_ADDRESS: address }: Readonly<Record<string, string | undefined>>,
  timeoutMs?: number,
): DbusConnection | undefined {
  const bus = findSystemBus(address || undefined, timeoutMs);
  if (!bus) return undefined;
  let isRunning: unknown = false;
  try {
    isRunning = bus.call({ ...BUS_OBJECT, member: "NameHasOwner", args: [FIREWALLD_BUS_NAME] });
  } finally {
    if (isRunning !== true) bus[Symbol.dispose]();
  }
  return isRunning === true ? bus : undefined;
}
