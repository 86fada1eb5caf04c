import type { PluginConfig } from "../../spec/plugin_config.ts";
import { CniError, Code } from "../../spec/error.ts";
import { excerpt } from "../../spec/jsonc.ts";
import {
  array,
  boolean,
  findValue,
  type Infer,
  int,
  jsonObject,
  knownKeys,
  lazy,
  nonEmptyString,
  refine,
  type Schema,
  string,
  withDefault,
} from "../../spec/schema.ts";
import { DEFAULT_SOCKET_PATH } from "./protocol.ts";

/** The names of options that the reference plugin knows; others go by number. */
const OPTION_NAMES: Readonly<Record<string, number>> = {
  "subnet-mask": 1,
  "routers": 3,
  "host-name": 12,
  "vendor-class-identifier": 60,
  "dhcp-client-identifier": 61,
  "user-class": 77,
};
const [SUBNET_MASK, ROUTERS] = [1, 3];
const CLIENT_ID = 61;
/** Padding, and the kind of a message, which the client alone decides. */
const FORBIDDEN_OPTIONS = [0, 53, 255];
/**
 * The reference plugin requests fewer. Further ones are name servers (6), domain (15), MTU (26), static routes (33),
 * NTP servers (42), times (51, 58, 59), search list (119) and classless routes (121), which precede routers (RFC 3442).
 */
const DEFAULT_REQUESTS = [1, 121, 3, 6, 15, 26, 33, 42, 51, 58, 59, 119];
/** What the reference plugin falls back to. */
const MINIMAL_REQUESTS = [1, 3, 15, 6];
const MAX_OPTION_BYTES = 255;

const optionCode = (text: string): number | undefined =>
  OPTION_NAMES[text] ?? (/^\d+$/.test(text) && Number(text) <= 255 ? Number(text) : undefined);

const OPTION_KEY = `an option's name (${Object.keys(OPTION_NAMES).join(", ")}) or number`;
const optionKey: Schema<string> = refine(string, OPTION_KEY, (text) => optionCode(text) !== undefined);
const providedKey: Schema<string> = refine(
  string,
  `${OPTION_KEY}, except 0, 53 and 255`,
  (text) => !FORBIDDEN_OPTIONS.includes(optionCode(text) ?? 0),
);
const optionValue: Schema<string> = refine(
  string,
  `at most ${MAX_OPTION_BYTES} bytes`,
  (text) => bytesOf(text).length <= MAX_OPTION_BYTES,
);

const socketPath: Schema<string> = refine(
  nonEmptyString,
  "an absolute path of at most 107 bytes",
  (text) => text.startsWith("/") && !text.includes("\0") && bytesOf(text).length <= 107,
);

const ipamKeys = () => ({
  daemonSocketPath: withDefault({ ...socketPath, emptyIsUnset: true }, DEFAULT_SOCKET_PATH),
  provide: withDefault(
    array(
      knownKeys({ option: providedKey, value: withDefault(optionValue, ""), fromArg: withDefault(string, "") }),
    ),
    [],
  ),
  request: withDefault(
    array(knownKeys({ option: withDefault(optionKey, ""), skipDefault: withDefault(boolean, false) })),
    [],
  ),
  /** The metric of all routes; 0: the kernel's. */
  priority: withDefault(int({ min: 0, max: 0xffff_ffff }), 0),
});
const ipam = lazy(() => knownKeys(ipamKeys()));

export const dhcpConfigSchema = () => knownKeys({ ipam });

/** DEL must work with options that ADD refuses, so each command reads other keys only as needed. */
export const daemonConfig = lazy(() =>
  knownKeys({
    ipam: withDefault(knownKeys({ daemonSocketPath: ipamKeys().daemonSocketPath }), {
      daemonSocketPath: DEFAULT_SOCKET_PATH,
    }),
  })
);
export type DaemonConfig = Infer<typeof daemonConfig>;

export interface LeaseOptions {
  /** Replaces the default client identifier. */
  readonly clientId?: Uint8Array;
  readonly provided: readonly { readonly code: number; readonly value: Uint8Array }[];
  readonly requested: readonly number[];
  readonly priority: number;
}

/** @param args of CNI_ARGS @throws {ConfigError} or, for CNI_ARGS, {@linkcode CniError} with code 4 */
export function parseLeaseOptions({ raw }: PluginConfig, args: Readonly<Record<string, string>>): LeaseOptions {
  const { provide, request, priority } = ipam.parse(jsonObject.parse(findValue(raw, "ipam"), "ipam"), "ipam");
  const values = new Map<number, Uint8Array>();
  for (const { option, value, fromArg } of provide) {
    const code = optionCode(option)!;
    if (value !== "") values.set(code, bytesOf(value));
    const argument = args[fromArg] ?? "";
    if (argument !== "") values.set(code, argumentValue(fromArg, argument));
  }
  const clientId = values.get(CLIENT_ID);
  values.delete(CLIENT_ID);
  return {
    ...clientId && { clientId },
    provided: [...values].map(([code, value]) => ({ code, value })),
    requested: requestedOptions(request),
    priority,
  };
}

function argumentValue(name: string, text: string): Uint8Array {
  const value = bytesOf(text);
  if (value.length <= MAX_OPTION_BYTES) return value;
  throw new CniError(
    Code.InvalidEnvironment,
    `Cannot use CNI_ARGS: ${name} must have at most ${MAX_OPTION_BYTES} bytes, as a DHCP option: got ${excerpt(text)}`,
  );
}

type RequestEntry = Infer<typeof ipam>["request"][number];

function requestedOptions(request: readonly RequestEntry[]): number[] {
  if (request.length === 0) return DEFAULT_REQUESTS;
  const skipsDefault = request.some(({ skipDefault }) => skipDefault);
  const codes = request.flatMap(({ option }) => option === "" ? [] : [optionCode(option)!]);
  const all = [...new Set([...codes, ...skipsDefault ? [] : [ROUTERS, SUBNET_MASK]])];
  return all.length > 0 ? all : MINIMAL_REQUESTS;
}

const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);
