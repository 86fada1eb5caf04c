/**
 * The configuration of the `bandwidth` plugin.
 *
 * @module
 */
import { ConfigError } from "../../spec/error.ts";
import {
  findKey,
  join,
  type JsonObject,
  jsonObject,
  lazy,
  optional,
  type Schema,
  struct,
  withDefault,
} from "../../spec/schema.ts";
import { rate, size } from "./units.ts";

/** How much may pass in one direction. */
export interface Limit {
  /** Bits per second, above 0. */
  readonly rate: bigint;
  /** Bits, above 0 and below 4 GiB. */
  readonly burst: bigint;
}

/** Limits as the container sees them; a direction without one is not limited. */
export interface BandwidthConfig {
  /** Towards the container. */
  readonly ingress?: Limit;
  /** Away from it. */
  readonly egress?: Limit;
}

/** The four keys as they stand at the top of a configuration and in the capability. */
interface Keys {
  readonly ingressRate?: bigint;
  readonly ingressBurst?: bigint;
  readonly egressRate?: bigint;
  readonly egressBurst?: bigint;
}
const NAMES = ["ingressRate", "ingressBurst", "egressRate", "egressBurst"] as const;

const shape = () => ({
  ingressRate: optional(rate),
  ingressBurst: optional(size),
  egressRate: optional(rate),
  egressBurst: optional(size),
});
const keys: Schema<Keys> = lazy(() => struct(shape()));

/** One of the four keys at the top, even with `null`, is enough for the capability not to count. */
export const bandwidthConfig: Schema<BandwidthConfig> = {
  inner: () => struct({ ...shape(), runtimeConfig: struct({ bandwidth }) }),
  parse(node, path = "") {
    const raw = jsonObject.parse(node, path);
    if (NAMES.some((name) => findKey(raw, name) !== undefined)) return limitsOf(raw, path);
    return capability.parse(raw, path).runtimeConfig.bandwidth;
  },
};

const capability = lazy(() => struct({ runtimeConfig: withDefault(struct({ bandwidth }), { bandwidth: {} }) }));
const bandwidth: Schema<BandwidthConfig> = {
  inner: keys,
  parse: (node, path = "") => limitsOf(jsonObject.parse(node ?? {}, path), path),
};

function limitsOf(raw: JsonObject, path: string): BandwidthConfig {
  const found = keys.parse(raw, path);
  // As it is written there: DEL goes on without the key that an error names.
  const pathOf = (name: keyof Keys) => join(path, findKey(raw, name) ?? name);
  const ingress = limitOf(found, "ingressRate", "ingressBurst", pathOf);
  const egress = limitOf(found, "egressRate", "egressBurst", pathOf);
  return { ...ingress && { ingress }, ...egress && { egress } };
}

/** The kernel counts a burst in 32 bits, as bytes. */
const BURST_BYTES_END = 0xffff_ffffn;

function limitOf(
  found: Keys,
  rateName: keyof Keys,
  burstName: keyof Keys,
  pathOf: (name: keyof Keys) => string,
): Limit | undefined {
  const { [rateName]: rate = 0n, [burstName]: burst = 0n } = found;
  if (rate === 0n && burst === 0n) return undefined;
  if (burst === 0n) throw new ConfigError(pathOf(rateName), `set together with ${burstName}`, String(rate));
  if (rate === 0n) throw new ConfigError(pathOf(burstName), `set together with ${rateName}`, String(burst));
  if (burst / 8n < BURST_BYTES_END) return { rate, burst };
  const expected = `less than ${BURST_BYTES_END * 8n} bits, which are 4 GiB`;
  throw new ConfigError(pathOf(burstName), expected, `${burst} bits`);
}
