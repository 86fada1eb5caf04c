/** firewalld's zones of container addresses, over D-Bus. @see firewalld.dbus(5) */
import { hostPrefix, type Ip } from "../../ffi/address.ts";
import { BUS_OBJECT, type DbusConnection, findSystemBus } from "../../ffi/dbus/connection.ts";

export const FIREWALLD_BUS_NAME = "org.fedoraproject.FirewallD1";
const ZONE_INTERFACE = {
  destination: FIREWALLD_BUS_NAME,
  path: "/org/fedoraproject/FirewallD1",
  interface: `${FIREWALLD_BUS_NAME}.zone`,
} as const;

export interface Firewalld extends Disposable {
  /** @returns false if the address was there @throws {DbusError} */
  add(zone: string, address: Ip): boolean;
  /** @throws {DbusError} */
  remove(zone: string, address: Ip): void;
  /** @throws {DbusError} */
  has(zone: string, address: Ip): boolean;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** `undefined` if it does not run. @throws {SystemError} if the bus does not answer */
export function findFirewalld({ DBUS_SYSTEM_BUS_ADDRESS: address }: Environment): Firewalld | undefined {
  const bus = findSystemBus(address || undefined);
  if (!bus) return undefined;
  let isRunning: unknown = false;
  try {
    isRunning = bus.call({ ...BUS_OBJECT, member: "NameHasOwner", args: [FIREWALLD_BUS_NAME] });
  } finally {
    if (isRunning !== true) bus[Symbol.dispose]();
  }
  return isRunning === true ? connectFirewalld(bus) : undefined;
}

function connectFirewalld(bus: DbusConnection): Firewalld {
  const call = (member: string, zone: string, address: Ip) =>
    bus.call({ ...ZONE_INTERFACE, member, args: [zone, hostPrefix(address)] });
  const isInZone = (zone: string, address: Ip) => call("querySource", zone, address) === true;
  return {
    has: isInZone,
    // Asked first: firewalld's errors have no codes.
    add(zone, address) {
      const isNew = !isInZone(zone, address);
      if (isNew) call("addSource", zone, address);
      return isNew;
    },
    remove: (zone, address) => void (isInZone(zone, address) && call("removeSource", zone, address)),
    [Symbol.dispose]: () => bus[Symbol.dispose](),
  };
}
