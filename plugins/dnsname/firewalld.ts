/** Rich rules of firewalld, which let questions in. @see firewalld.richlanguage(5) */
import { familyOf } from "../../ffi/address.ts";
import type { DbusConnection } from "../../ffi/dbus/connection.ts";
import { findFirewalldBus, FIREWALLD_ZONES } from "../lib/ruleset/firewalld_bus.ts";
import { DNS_PORT } from "./protocol.ts";
import type { NameServer } from "./record.ts";

type Environment = Readonly<Record<string, string | undefined>>;

/** @returns what was missing, as text @throws {DbusError} */
export function addRichRules(env: Environment, servers: readonly NameServer[]): string[] {
  return forEachRule(env, servers, (call, zone, rule, server) => {
    // Asked first: firewalld's errors have no codes.
    if (call("queryRichRule", zone, rule) === true) return [];
    // The rule lasts until a reload.
    call("addRichRule", zone, rule, 0);
    return [`rule of firewalld for ${server.address}`];
  });
}

/** @returns those that are missing, as text @throws {DbusError} */
export function listMissingRichRules(env: Environment, servers: readonly NameServer[]): string[] {
  return forEachRule(
    env,
    servers,
    (call, zone, rule, server) =>
      call("queryRichRule", zone, rule) === true ? [] : [`rule of firewalld for ${server.address}`],
  );
}

export function removeRichRules(env: Environment, servers: readonly NameServer[]): void {
  forEachRule(env, servers, (call, zone, rule) => {
    if (call("queryRichRule", zone, rule) === true) call("removeRichRule", zone, rule);
    return [];
  });
}

type Call = (member: string, ...args: (string | number)[]) => unknown;

function forEachRule(
  env: Environment,
  servers: readonly NameServer[],
  act: (call: Call, zone: string, rule: string, server: NameServer) => string[],
): string[] {
  using bus: DbusConnection | undefined = findFirewalldBus(env);
  if (!bus) return [];
  const call: Call = (member, ...args) => bus.call({ ...FIREWALLD_ZONES, member, args });
  const texts = servers.flatMap((server) => {
    // An empty name is that of the default zone.
    const zone = String(call("getZoneOfInterface", server.device));
    return ["udp", "tcp"].flatMap((protocol) => act(call, zone, richRule(server, protocol), server));
  });
  return [...new Set(texts)];
}

const richRule = ({ address }: NameServer, protocol: string): string =>
  `rule family="ipv${familyOf(address)}" destination address="${address}" ` +
  `port port="${DNS_PORT}" protocol="${protocol}" accept`;
