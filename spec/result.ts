/**
 * What a successful ADD returns. In memory it always has the current form; the three forms that were ever printed are
 * read into it and written from it, so there are six conversions and not forty-nine.
 *
 * @module
 */
import { type Cidr, familyOf, type Ip } from "../ffi/address.ts";
import { CniError, Code, ConfigError } from "./error.ts";
import { printJson } from "./jsonc.ts";
import * as schema from "./schema.ts";
import { LATEST, parseVersion, type Version, VERSIONS } from "./version.ts";

/** The outcome of an attachment (SPEC §ADD Success); lists are absent rather than empty. */
export interface Result {
  /** All that the plugins made, on the host and in the container. */
  readonly interfaces?: readonly Interface[];
  /** Addresses of the container. */
  readonly ips?: readonly IpConfig[];
  /** Routes of the container. */
  readonly routes?: readonly schema.Route[];
  /** Resolver settings for the container. */
  readonly dns?: Dns;
}

/** A network interface that a plugin made or moved. */
export interface Interface {
  /** In its namespace: `eth0`. */
  readonly name: string;
  /** As the plugin wrote it: `0a:58:0a:01:00:02`. */
  readonly mac?: string;
  /** Path of the network namespace; absent for an interface of the host. */
  readonly sandbox?: string;
  /** In bytes. */
  readonly mtu?: number;
  /** Absolute path of a socket that stands for the interface: vhost-user. */
  readonly socketPath?: string;
  /** Of a PCI device that stands for the interface: `0000:3b:02.1`. */
  readonly pciID?: string;
}

/** An address of the container. */
export interface IpConfig {
  /** With the prefix length of its network: `10.1.0.2/16`. */
  readonly address: Cidr;
  /** The default gateway of its network. */
  readonly gateway?: Ip;
  /** Index into `interfaces`; other plugins also write -1 or an index that is not there. */
  readonly interface?: number;
}

/** A route, in a result as in a configuration. */
export type RouteConfig = schema.Route;

/** Resolver settings; see resolv.conf(5). */
export interface Dns {
  /** Addresses, most wanted first. */
  readonly nameservers?: readonly string[];
  /** Appended to short names. */
  readonly domain?: string;
  /** Domains to try for short names, most wanted first. */
  readonly search?: readonly string[];
  /** For the resolver: `ndots:2`. */
  readonly options?: readonly string[];
}

/** One printed form. Fields that a form does not have are lost in it. */
export interface ResultShape {
  /** @throws ConfigError */
  parse(json: unknown, path?: string): Result;
  /** Keys in the order in which the form prints them, without `cniVersion`. @throws CniError if it cannot be said */
  format(result: Result): object;
}

const text = schema.optional(schema.nonEmptyString);
const texts = schema.optional(schema.array(schema.string));
/** Resolver settings, in a configuration and in a result. */
export const dns: schema.Schema<Dns> = schema.lazy(() =>
  schema.struct({
    nameservers: texts,
    domain: text,
    search: texts,
    options: texts,
  })
);
const routes = schema.optional(schema.array(schema.route));

/** @param since what interfaces have besides name, address and sandbox */
const listsWith = <S extends schema.Shape>(since: S) =>
  schema.struct({
    interfaces: schema.optional(
      schema.array(schema.struct({ name: schema.withDefault(schema.string, ""), mac: text, sandbox: text, ...since })),
    ),
    ips: schema.optional(schema.array(schema.struct({
      address: schema.cidr,
      gateway: schema.optional(schema.ipAddress),
      interface: schema.optional(schema.int()),
    }))),
    routes,
    dns: schema.optional(dns),
  });

const current = schema.lazy(() =>
  listsWith({ mtu: schema.optional(schema.int({ min: 0 })), socketPath: text, pciID: text })
);
/** Here those are unknown keys, which may hold anything. */
const older = schema.lazy(() => listsWith({}));

const perFamily = schema.optional(schema.struct({
  ip: schema.cidr,
  gateway: schema.optional(schema.ipAddress),
  routes,
}));
const oldest = schema.lazy(() => schema.struct({ ip4: perFamily, ip6: perFamily, dns: schema.optional(dns) }));

const header = schema.lazy(() =>
  schema.struct({
    cniVersion: text,
    ip4: schema.optional(schema.anything),
    ip6: schema.optional(schema.anything),
  })
);

/**
 * Results as they were read in the oldest form. It can say more of itself than what other forms are converted to: that there is no address,
 * and all of a route; a result that is handed on as it came keeps both.
 */
const readInOldest = new WeakSet<Result>();

const shapes: Readonly<Record<"0.2" | "0.4" | "1.0", ResultShape>> = {
  /** One address per family, routes beside it. */
  "0.2": {
    parse(json, path) {
      const { ip4, ip6, dns } = oldest.parse(json, path);
      const both = [ip4, ip6].filter((each) => each !== undefined);
      const result: Result = compact({
        ips: both.map(({ ip, gateway }) => compact({ address: ip, gateway })),
        routes: both.flatMap(({ routes }) => routes ?? []),
        dns: compact(dns ?? {}),
      });
      readInOldest.add(result);
      return result;
    },
    format(result) {
      const unchanged = readInOldest.has(result);
      const families = { ip4: formatFamily(result, 4, unchanged), ip6: formatFamily(result, 6, unchanged) };
      if (!families.ip4 && !families.ip6 && !unchanged) {
        throw new CniError(Code.Internal, "cannot convert: no valid IP addresses");
      }
      return { ...compact(families), dns: formatDns(result.dns) };
    },
  },
  /** Lists; every address says its family. */
  "0.4": {
    parse: (json, path) => withoutEmpty(older.parse(json, path)),
    format: (result) => ({
      ...compact({
        interfaces: result.interfaces?.map(formatOldInterface),
        ips: result.ips?.map((ip) =>
          compact({
            version: String(familyOf(ip.address)),
            interface: ip.interface,
            address: ip.address,
            gateway: ip.gateway,
          })
        ),
        routes: result.routes?.map(formatRoute),
      }),
      dns: formatDns(result.dns),
    }),
  },
  /** The current one: all keys sorted, an empty `dns` left out. */
  "1.0": {
    parse: (json, path) => withoutEmpty(current.parse(json, path)),
    format: (result) =>
      compact({
        dns: sorted(formatDns(result.dns)),
        interfaces: result.interfaces?.map(formatInterface),
        ips: result.ips?.map((ip) => compact({ address: ip.address, gateway: ip.gateway, interface: ip.interface })),
        routes: result.routes?.map((route) => sorted(formatRoute(route))),
      }),
  },
};

const shapeOf: Readonly<Record<Version, keyof typeof shapes>> = {
  "0.1.0": "0.2",
  "0.2.0": "0.2",
  "0.3.0": "0.4",
  "0.3.1": "0.4",
  "0.4.0": "0.4",
  "1.0.0": "1.0",
  "1.1.0": "1.0",
};

/**
 * Reads a result of any version; one that does not say its version has the configuration's, or the form it shows.
 *
 * @example
 * ```ts
 * import { parseResult } from "./mod.ts";
 *
 * const result = parseResult({ cniVersion: "0.2.0", ip4: { ip: "10.1.0.2/16" } }, "0.2.0");
 * console.log(result.ips?.[0]?.address); // 10.1.0.2/16
 * ```
 *
 * @param path where the result stands, for errors: `prevResult`
 * @throws CniError with code 6, naming the path of what is wrong: `ips[0].address`
 */
export function parseResult(json: unknown, configVersion: Version, path = ""): Result {
  try {
    const { cniVersion, ip4, ip6 } = header.parse(json ?? {}, path);
    // Results in requests of 0.3.x in the specification have no version and the form before it.
    const unversioned = ip4 ?? ip6 ? "0.2.0" : configVersion;
    const version = cniVersion === undefined ? unversioned : parseVersion(cniVersion);
    if (version === undefined) {
      throw new CniError(Code.DecodeFailure, `Cannot read result: unsupported version ${schema.excerpt(cniVersion)}`);
    }
    return shapes[shapeOf[version]].parse(json ?? {}, path);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const reason = `${error.path || "the document"} must be ${error.expected}: got ${error.got}`;
    throw new CniError(Code.DecodeFailure, `Cannot read result: ${reason}`, { cause: error });
  }
}

/**
 * The document of `version`, keys in the order it prints them.
 *
 * @example
 * ```ts
 * import { formatResult, parseCidr } from "./mod.ts";
 *
 * const result = { ips: [{ address: parseCidr("10.1.0.2/16") }] };
 * console.log(JSON.stringify(formatResult(result, "0.2.0"))); // {"cniVersion":"0.2.0","ip4":{"ip":"10.1.0.2/16"},"dns":{}}
 * ```
 *
 * @throws CniError if that version cannot say it
 */
export function formatResult(result: Result, version: Version): object {
  if (!Object.hasOwn(shapeOf, version)) {
    // Types do not reach the callers whose version comes from a file.
    const details = `supported are ${VERSIONS.join(", ")}`;
    throw new CniError(
      Code.IncompatibleVersion,
      `Cannot print result: unsupported version ${schema.excerpt(version)}`,
      {
        details,
      },
    );
  }
  return { cniVersion: version, ...shapes[shapeOf[version]].format(result) };
}

/**
 * A result document of any version as one of `version`; what that form cannot say is left out.
 *
 * @example
 * ```ts
 * import { convertResult } from "./mod.ts";
 *
 * const answer = JSON.parse(`{ "cniVersion": "1.1.0", "ips": [{ "address": "10.1.0.2/16" }] }`);
 * console.log(JSON.stringify(convertResult(answer, "0.4.0").ips)); // [{"version":"4","address":"10.1.0.2/16"}]
 * console.log(JSON.stringify(convertResult(answer, "0.1.0"))); // {"cniVersion":"0.1.0","ip4":{"ip":"10.1.0.2/16"},"dns":{}}
 * ```
 *
 * @param result one that does not say its version is read in the form it shows
 * @throws {CniError} code 6, naming the path of what cannot be read, code 1 if there is no such `version`, or if it cannot say the result
 */
export function convertResult(result: unknown, version: Version): schema.JsonObject {
  return formatResult(parseResult(result, LATEST), version) as schema.JsonObject;
}

/** The text a plugin prints: indented, escaped, without an end of line. @throws CniError as {@linkcode formatResult} */
export function printResult(result: Result, version: Version): string {
  return printJson(formatResult(result, version), 4);
}

function withoutEmpty(result: Result): Result {
  return compact({ ...result, dns: compact(result.dns ?? {}) });
}

/** The first address of the family, and the routes of that family: destination and gateway, or all of them. */
function formatFamily(result: Result, family: 4 | 6, wholeRoutes: boolean): object | undefined {
  const first = result.ips?.find(({ address }) => familyOf(address) === family);
  return first && compact({
    ip: first.address,
    gateway: first.gateway,
    routes: result.routes?.filter(({ dst }) => familyOf(dst) === family).map((route) =>
      wholeRoutes ? formatRoute(route) : compact({ dst: route.dst, gw: route.gw })
    ),
  });
}

function formatOldInterface({ name, mac, sandbox }: Interface): Interface {
  return compact({ name, mac: mac || undefined, sandbox: sandbox || undefined });
}

function formatInterface({ mac, mtu, name, pciID, sandbox, socketPath }: Interface): object {
  return compact({
    mac: mac || undefined,
    mtu: mtu || undefined,
    name,
    pciID: pciID || undefined,
    sandbox: sandbox || undefined,
    socketPath: socketPath || undefined,
  });
}

/** Zero means "not set" for all but table and scope, where it is a value of its own. */
function formatRoute({ dst, gw, mtu, advmss, priority, table, scope }: RouteConfig): object {
  return compact({
    dst,
    gw,
    mtu: mtu || undefined,
    advmss: advmss || undefined,
    priority: priority || undefined,
    table,
    scope,
  });
}

function formatDns({ nameservers, domain, search, options }: Dns = {}): object {
  return compact({ nameservers, domain: domain || undefined, search, options });
}

function sorted(object: object): object {
  const out: Record<string, unknown> = {};
  for (const key of Object.keys(object).sort()) out[key] = object[key as keyof typeof object];
  return out;
}

/** Without what is undefined or empty. */
function compact<T extends object>(object: T): T {
  const full: Partial<T> = {};
  for (const key in object) {
    const value = object[key];
    const empty = value === undefined || (typeof value === "object" && Object.keys(value!).length === 0);
    if (!empty) full[key] = value;
  }
  return full as T;
}
