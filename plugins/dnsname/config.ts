import { ConfigError } from "../../spec/error.ts";
import {
  array,
  excerpt,
  type Infer,
  isJsonObject,
  knownKeys,
  lazy,
  object,
  optional,
  record,
  refine,
  type Schema,
  string,
  withDefault,
} from "../../spec/schema.ts";
import { isDnsName } from "../../spec/dns_name.ts";

const dnsName = refine(
  string,
  "a name for DNS: parts of 1 to 63 letters, digits, `-` or `_`, joined by dots, 253 characters at most",
  isDnsName,
);
const absolutePath = refine(string, "an absolute path", (path) => /^\/[^\0]*$/.test(path));
/** `sun_path` of `struct sockaddr_un` has 108 bytes, with the NUL. */
const MAX_SOCKET_PATH_BYTES = 107;
const socketPath = refine(
  string,
  `an absolute path of at most ${MAX_SOCKET_PATH_BYTES} bytes`,
  (path) => /^\/[^\0]*$/.test(path) && new TextEncoder().encode(path).length <= MAX_SOCKET_PATH_BYTES,
);

/** The convention has a list of names. Engines send an object: network to names. */
const aliases: Schema<readonly string[] | Readonly<Record<string, readonly string[]>>> = {
  parse(node, path = "") {
    if (Array.isArray(node)) return names.parse(node, path);
    if (isJsonObject(node)) return record(names).parse(node, path);
    throw new ConfigError(path, "an object of lists of names, or a list of names", excerpt(node));
  },
};
const names = array(dnsName);

export const dnsnameConfig = lazy(() =>
  object({
    /** Names also resolve with this suffix. Empty: there is none. */
    domainName: withDefault({ ...dnsName, emptyIsUnset: true }, ""),
    dataDir: withDefault({ ...absolutePath, emptyIsUnset: true }, "/run/cni/dnsname"),
    daemonSocketPath: withDefault({ ...socketPath, emptyIsUnset: true }, "/run/cni/dnsname.sock"),
    runtimeConfig: optional(knownKeys({ aliases: optional(aliases) })),
  })
);

export type DnsnameConfig = Infer<typeof dnsnameConfig>;

export function aliasesIn({ runtimeConfig }: DnsnameConfig, network: string): readonly string[] {
  const given = runtimeConfig?.aliases ?? [];
  if (Array.isArray(given)) return given;
  return Object.hasOwn(given, network) ? (given as Readonly<Record<string, readonly string[]>>)[network]! : [];
}
