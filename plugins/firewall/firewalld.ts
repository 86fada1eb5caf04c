/** firewalld's zones of container addresses, over D-Bus. @see firewalld.dbus(5) */
import { hostPrefix, type Ip } from "../../ffi/address.ts";
import type { DbusConnection } from "../../ffi/dbus/connection.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { findFirewalldBus, FIREWALLD_ZONES } from "../lib/ruleset/firewalld_bus.ts";

export interface Firewalld extends Disposable {
  /** @returns false if the address was there @throws {DbusError} */
  add(zone: string, address: Ip): boolean;
  remove(zone: string, address: Ip): void;
  has(zone: string, address: Ip): boolean;
}

export function findFirewalld(
  env: Readonly<Record<string, string | undefined>>,
  timeoutMs?: number,
): Firewalld | undefined {
  const bus = findFirewalldBus(env, timeoutMs);
  return bus && connectFirewalld(bus);
}

function connectFirewalld(bus: DbusConnection): Firewalld {
  let failure: SystemError | undefined;
  const call = (member: string, zone: string, address: Ip) => {
    // Attachments share a connection: the others do not wait for an answer that the first did not get.
    if (failure) throw failure;
    try {
      return bus.call({ ...FIREWALLD_ZONES, member, args: [zone, hostPrefix(address)] });
    } catch (error) {
      if (error instanceof SystemError) failure = error;
      throw error;
    }
  };
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
