import { ConfigError } from "../../spec/error.ts";
import {
  findKey,
  type JsonObject,
  jsonObject,
  knownKeys,
  lazy,
  memberPath,
  optional,
  type Schema,
  withDefault,
} from "../../spec/schema.ts";
import { bitRate, bitSize } from "./units.ts";

export interface Limit {
  /** Bits per second, above 0. */
  readonly rate: bigint;
  /** Bits, above 0 and below 4 GiB. */
  readonly burst: bigint;
}

export interface BandwidthConfig {
  /** Limits what the container receives. */
  readonly ingress?: Limit;
  /** Limits what the container sends. */
  readonly egress?: Limit;
}

const LIMIT_KEYS = ["ingressRate", "ingressBurst", "egressRate", "egressBurst"] as const;
/** The keys are at the top of a configuration, or in the capability. */
type LimitKeys = { readonly [K in (typeof LIMIT_KEYS)[number]]?: bigint };

const limitSchemas = () => ({
  ingressRate: optional(bitRate),
  ingressBurst: optional(bitSize),
  egressRate: optional(bitRate),
  egressBurst: optional(bitSize),
});
const limitKeys: Schema<LimitKeys> = lazy(() => knownKeys(limitSchemas()));

/** If one of the keys is at the top, even with `null`, the capability has no effect. */
export const bandwidthConfig: Schema<BandwidthConfig> = {
  inner: () => knownKeys({ ...limitSchemas(), runtimeConfig: optional(knownKeys({ bandwidth: capabilitySchema })) }),
  parse(node, path = "") {
    const raw = jsonObject.parse(node, path);
    if (LIMIT_KEYS.some((name) => findKey(raw, name) !== undefined)) return parseLimits(raw, path);
    return runtimeSchema.parse(raw, path).runtimeConfig.bandwidth;
  },
};

const runtimeSchema = lazy(() =>
  knownKeys({ runtimeConfig: withDefault(knownKeys({ bandwidth: capabilitySchema }), { bandwidth: {} }) })
);
const capabilitySchema: Schema<BandwidthConfig> = {
  inner: limitKeys,
  parse: (node, path = "") => parseLimits(jsonObject.parse(node ?? {}, path), path),
};

function parseLimits(raw: JsonObject, path: string): BandwidthConfig {
  const values = limitKeys.parse(raw, path);
  // The path has the configuration's spelling: DEL continues without the key that an error names.
  const keyPath = (name: keyof LimitKeys) => memberPath(path, findKey(raw, name) ?? name);
  const ingress = parseLimit(values, "ingressRate", "ingressBurst", keyPath);
  const egress = parseLimit(values, "egressRate", "egressBurst", keyPath);
  return { ...ingress && { ingress }, ...egress && { egress } };
}

/** The kernel counts burst bytes in 32 bits. */
const MAX_BURST_BYTES = 0xffff_ffffn;

function parseLimit(
  values: LimitKeys,
  rateName: keyof LimitKeys,
  burstName: keyof LimitKeys,
  keyPath: (name: keyof LimitKeys) => string,
): Limit | undefined {
  const { [rateName]: rate = 0n, [burstName]: burst = 0n } = values;
  if (rate === 0n && burst === 0n) return undefined;
  if (burst === 0n) throw new ConfigError(keyPath(rateName), `set together with ${burstName}`, String(rate));
  if (rate === 0n) throw new ConfigError(keyPath(burstName), `set together with ${rateName}`, String(burst));
  if (burst / 8n < MAX_BURST_BYTES) return { rate, burst };
  const expected = `less than ${MAX_BURST_BYTES * 8n} bits, which are 4 GiB`;
  throw new ConfigError(keyPath(burstName), expected, `${burst} bits`);
}
