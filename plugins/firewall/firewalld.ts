/** firewalld's zones of container addresses, over D-Bus. @see firewalld.dbus(5) */
import { hostPrefix, type Ip } from "../../ffi/address.ts";
import type { DbusConnection } from "../../ffi/dbus/connection.ts";
import { findFirewalldBus, FIREWALLD_ZONES } from "../lib/ruleset/firewalld_bus.ts";

export interface Firewalld extends Disposable {
  /** @returns false if the address was there @throws {DbusError} */
  add(zone: string, address: Ip): boolean;
  /** @throws {DbusError} */
  remove(zone: string, address: Ip): void;
  /** @throws {DbusError} */
  has(zone: string, address: Ip): boolean;
}

/** `undefined` if it does not run. @throws {SystemError} if the bus does not answer */
export function findFirewalld(env: Readonly<Record<string, string | undefined>>): Firewalld | undefined {
  const bus = findFirewalldBus(env);
  return bus && connectFirewalld(bus);
}

function connectFirewalld(bus: DbusConnection): Firewalld {
  const call = (member: string, zone: string, address: Ip) =>
    bus.call({ ...FIREWALLD_ZONES, member, args: [zone, hostPrefix(address)] });
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
