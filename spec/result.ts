/** In memory, results have the newest form; the three printed forms are converted. */
import { type Cidr, familyOf, type Ip } from "../ffi/address.ts";
import { CniError, Code, ConfigError } from "./error.ts";
import { excerpt, stringifyJson } from "./jsonc.ts";
import * as schema from "./schema.ts";
import { LATEST, parseVersion, type Version, VERSIONS } from "./version.ts";

/** What an ADD made (SPEC §ADD Success); no list is empty. */
export interface Result {
  /** Interfaces on the host and in the container. */
  readonly interfaces?: readonly Interface[];
  /** Addresses that the container has got. */
  readonly ips?: readonly IpConfig[];
  /** Routes that the container has got. */
  readonly routes?: readonly schema.RouteConfig[];
  /** Settings for the resolver of the container. */
  readonly dns?: Dns;
}

/** An interface that a plugin made or moved. */
export interface Interface {
  /** The name in its namespace: `eth0`. */
  readonly name: string;
  /** As the plugin wrote it: `0a:58:0a:01:00:02`. */
  readonly mac?: string;
  /** The path of its namespace; absent on the host. */
  readonly sandbox?: string;
  /** The largest packet, in bytes. */
  readonly mtu?: number;
  /** A vhost-user socket in its place, as an absolute path. */
  readonly socketPath?: string;
  /** A PCI device in its place: `0000:3b:02.1`. */
  readonly pciID?: string;
}

/** An address that the container has got. */
export interface IpConfig {
  /** Has the prefix length of its network: `10.1.0.2/16`. */
  readonly address: Cidr;
  /** The default gateway of the container. */
  readonly gateway?: Ip;
  /** Index into `interfaces`; others also write -1 or one beyond the end. */
  readonly interface?: number;
}

/** Settings of a resolver, see resolv.conf(5). */
export interface Dns {
  /** The preferred server comes first. */
  readonly nameservers?: readonly string[];
  /** The resolver appends it to short names. */
  readonly domain?: string;
  /** Domains to try for short names, the preferred first. */
  readonly search?: readonly string[];
  /** Options of resolv.conf(5), such as `ndots:2`. */
  readonly options?: readonly string[];
}

const optionalString = schema.optional(schema.nonEmptyString);
const optionalStrings = schema.optional(schema.array(schema.string));

export const dnsSchema: schema.Schema<Dns> = schema.lazy(() =>
  schema.knownKeys({
    nameservers: optionalStrings,
    domain: optionalString,
    search: optionalStrings,
    options: optionalStrings,
  })
);
const optionalRoutes = schema.optional(schema.array(schema.route));

const resultSchema = <S extends schema.Shape>(interfaceExtras: S) =>
  schema.knownKeys({
    interfaces: schema.optional(
      schema.array(
        schema.knownKeys({
          name: schema.withDefault(schema.string, ""),
          mac: optionalString,
          sandbox: optionalString,
          ...interfaceExtras,
        }),
      ),
    ),
    ips: schema.optional(schema.array(schema.knownKeys({
      address: schema.cidr,
      gateway: schema.optional(schema.ipAddress),
      interface: schema.optional(schema.int()),
    }))),
    routes: optionalRoutes,
    dns: schema.optional(dnsSchema),
  });

const schema100 = schema.lazy(() =>
  resultSchema({ mtu: schema.optional(schema.int({ min: 0 })), socketPath: optionalString, pciID: optionalString })
);

/** In this form, the extra keys are unknown and may hold anything. */
const schema040 = schema.lazy(() => resultSchema({}));

const familySchema020 = schema.optional(schema.knownKeys({
  ip: schema.cidr,
  gateway: schema.optional(schema.ipAddress),
  routes: optionalRoutes,
}));
const schema020 = schema.lazy(() =>
  schema.knownKeys({ ip4: familySchema020, ip6: familySchema020, dns: schema.optional(dnsSchema) })
);

const headerSchema = schema.lazy(() =>
  schema.knownKeys({
    cniVersion: optionalString,
    ip4: schema.optional(schema.anything),
    ip6: schema.optional(schema.anything),
  })
);

/**
 * Results read in the oldest form. Printed in it again, they may lack an address and keep all keys of routes. This is no
 * field of a result: a plugin's changed copy must not have it.
 */
const parsedFrom020 = new WeakSet<Result>();

/** The fields that a form lacks are lost. */
interface ResultFormat {
  parse(json: unknown, path?: string): Result;
  /** Keys are in the specification's order, without `cniVersion`. @throws {CniError} if the form cannot express it */
  format(result: Result): object;
}

const formats: Readonly<Record<"0.2" | "0.4" | "1.0", ResultFormat>> = {
  "0.2": {
    parse(json, path) {
      const { ip4, ip6, dns } = schema020.parse(json, path);
      const families = [ip4, ip6].filter((family) => family !== undefined);
      const result: Result = omitEmpty({
        ips: families.map(({ ip, gateway }) => omitEmpty({ address: ip, gateway })),
        routes: families.flatMap(({ routes }) => routes ?? []),
        dns: omitEmpty(dns ?? {}),
      });
      parsedFrom020.add(result);
      return result;
    },
    format(result) {
      const unchanged = parsedFrom020.has(result);
      const families = { ip4: formatFamily(result, 4, unchanged), ip6: formatFamily(result, 6, unchanged) };
      if (!families.ip4 && !families.ip6 && !unchanged) {
        throw new CniError(Code.Internal, "cannot convert: no valid IP addresses");
      }
      return { ...omitEmpty(families), dns: formatDns(result.dns) };
    },
  },
  "0.4": {
    parse: (json, path) => omitEmptyMembers(schema040.parse(json, path)),
    format: (result) => ({
      ...omitEmpty({
        interfaces: result.interfaces?.map(({ name, mac, sandbox }) => ({ name, ...omitEmpty({ mac, sandbox }) })),
        ips: result.ips?.map((ip) => ({ version: String(familyOf(ip.address)), ...formatIp(ip) })),
        routes: result.routes?.map(formatRoute),
      }),
      dns: formatDns(result.dns),
    }),
  },
  "1.0": {
    parse: (json, path) => omitEmptyMembers(schema100.parse(json, path)),
    format: (result) =>
      omitEmpty({
        interfaces: result.interfaces?.map(formatInterface),
        ips: result.ips?.map(formatIp),
        routes: result.routes?.map(formatRoute),
        dns: formatDns(result.dns),
      }),
  },
};

const formatOf: Readonly<Record<Version, keyof typeof formats>> = {
  "0.1.0": "0.2",
  "0.2.0": "0.2",
  "0.3.0": "0.4",
  "0.3.1": "0.4",
  "0.4.0": "0.4",
  "1.0.0": "1.0",
  "1.1.0": "1.0",
};

/**
 * Reads a result of any version. Without one, it has the configuration's, or the form that its keys show.
 *
 * @example
 * ```ts
 * import { parseResult } from "./mod.ts";
 *
 * const result = parseResult({ cniVersion: "0.2.0", ip4: { ip: "10.1.0.2/16" } }, "0.2.0");
 * console.log(result.ips?.[0]?.address); // 10.1.0.2/16
 * ```
 *
 * @param path for errors: `prevResult`
 * @throws {CniError} code 6 naming the wrong path: `ips[0].address`
 */
export function parseResult(json: unknown, configVersion: Version, path = ""): Result {
  try {
    const { cniVersion, ip4, ip6 } = headerSchema.parse(json ?? {}, path);
    // The specification's requests of 0.3.x hold results of 0.2.0 without a version.
    const unversioned = ip4 ?? ip6 ? "0.2.0" : configVersion;
    const version = cniVersion === undefined ? unversioned : parseVersion(cniVersion);
    if (version === undefined) {
      throw new CniError(Code.DecodeFailure, `Cannot read result: unsupported version ${excerpt(cniVersion)}`);
    }
    return formats[formatOf[version]].parse(json ?? {}, path);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const reason = `${error.path || "the document"} must be ${error.expected}: got ${error.got}`;
    throw new CniError(Code.DecodeFailure, `Cannot read result: ${reason}`, { cause: error });
  }
}

/**
 * The document, keys in the specification's order.
 *
 * @example
 * ```ts
 * import { formatResult, parseCidr } from "./mod.ts";
 *
 * const result = { ips: [{ address: parseCidr("10.1.0.2/16") }] };
 * console.log(JSON.stringify(formatResult(result, "0.2.0"))); // {"cniVersion":"0.2.0","ip4":{"ip":"10.1.0.2/16"},"dns":{}}
 * ```
 *
 * @throws {CniError} code 1 for an unknown version, 999 if it cannot express the result
 */
export function formatResult(result: Result, version: Version): object {
  if (!Object.hasOwn(formatOf, version)) {
    // A caller's version may come from a file.
    const message = `Cannot print result: unsupported version ${excerpt(version)}`;
    throw new CniError(Code.IncompatibleVersion, message, { details: `supported are ${VERSIONS.join(", ")}` });
  }
  return { cniVersion: version, ...formats[formatOf[version]].format(result) };
}

/** Only the oldest form cannot express every result. @throws {CniError} as {@linkcode formatResult} */
export function requireExpressible(result: Result, version: Version): void {
  if (formatOf[version] === "0.2") formatResult(result, version);
}

/** Drops what the version cannot express. @throws {CniError} as {@linkcode formatResult} */
export function resultAsSeenIn(version: Version, result: Result): Result {
  return formatOf[version] === "0.2" ? parseResult(formatResult(result, version), version) : result;
}

/**
 * Converts a result document, and drops what the version cannot express.
 *
 * @example
 * ```ts
 * import { convertResult } from "./mod.ts";
 *
 * const answer = JSON.parse(`{ "cniVersion": "1.1.0", "ips": [{ "address": "10.1.0.2/16" }] }`);
 * console.log(JSON.stringify(convertResult(answer, "0.4.0").ips)); // [{"version":"4","address":"10.1.0.2/16"}]
 * ```
 *
 * @param result without a version, its keys show its form
 * @throws {CniError} code 6 naming the unreadable path, else as {@linkcode formatResult}
 */
export function convertResult(result: unknown, version: Version): schema.JsonObject {
  return formatResult(parseResult(result, LATEST), version) as schema.JsonObject;
}

export function stringifyResult(result: Result, version: Version): string {
  return stringifyJson(formatResult(result, version), 4);
}

function omitEmptyMembers(result: Result): Result {
  return omitEmpty({ ...result, dns: omitEmpty(result.dns ?? {}) });
}

function formatFamily(result: Result, family: 4 | 6, withAllRouteKeys: boolean): object | undefined {
  const first = result.ips?.find(({ address }) => familyOf(address) === family);
  return first && omitEmpty({
    ip: first.address,
    gateway: first.gateway,
    routes: result.routes?.filter(({ dst }) => familyOf(dst) === family).map((route) =>
      withAllRouteKeys ? formatRoute(route) : omitEmpty({ dst: route.dst, gw: route.gw })
    ),
  });
}

function formatIp({ address, gateway, interface: index }: IpConfig): object {
  return omitEmpty({ address, gateway, interface: index });
}

function formatInterface({ name, mac, mtu, sandbox, socketPath, pciID }: Interface): object {
  return { name, ...omitEmpty({ mac, mtu: mtu || undefined, sandbox, socketPath, pciID }) };
}

/** Zero means "not set", except for table and scope. */
function formatRoute({ dst, gw, mtu, advmss, priority, table, scope }: schema.RouteConfig): object {
  return omitEmpty({
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
  return omitEmpty({ nameservers, domain, search, options });
}

function omitEmpty<T extends object>(object: T): T {
  const nonEmpty: Partial<T> = {};
  for (const key in object) {
    const value = object[key];
    const empty = value === undefined || value === "" ||
      (typeof value === "object" && Object.keys(value!).length === 0);
    if (!empty) nonEmpty[key] = value;
  }
  return nonEmpty as T;
}
