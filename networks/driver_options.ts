/** `--option KEY=VALUE`: keys of the driver's plugin, and names that podman, nerdctl and Docker have for them. */
import type { Schema } from "../spec/schema.ts";
import type { JsonObject } from "../spec/schema.ts";
import { suggestion } from "../spec/suggest.ts";
import { commonConfigShape, shapeOf } from "../spec/unknown_keys.ts";
import { findPlugin } from "../plugins/registry.ts";
import { type NetworkDriver, NetworkRequestError } from "./new_network.ts";

/** Each driver takes those whose key its plugin has. */
const ALIASES: Readonly<Record<string, string>> = {
  parent: "master",
  macvlan_mode: "mode",
  ipvlan_mode: "mode",
  "com.docker.network.driver.mtu": "mtu",
  "com.docker.network.bridge.name": "bridge",
  "com.docker.network.bridge.enable_ip_masquerade": "ipMasq",
  "ip-masq": "ipMasq",
};

/** podman's name: containers of other bridges are kept out. */
const ISOLATE = "isolate";

interface DriverKeys {
  readonly driver: JsonObject;
  readonly firewall: JsonObject;
}

export function driverKeysOf(driver: NetworkDriver, options: ReadonlyMap<string, string>): DriverKeys {
  const shape = settableShape(driver);
  const keys: Record<string, unknown> = {};
  let firewall: JsonObject = {};
  for (const [option, text] of options) {
    if (option === ISOLATE && driver === "bridge") {
      firewall = isTrue(option, text) ? { ingressPolicy: "same-bridge" } : {};
      continue;
    }
    const key = ALIASES[option] ?? option;
    const schema = shape[key];
    if (!schema) throw unknownOptionError(driver, option, Object.keys(shape));
    keys[key] = parseOption(option, text, schema);
  }
  return { driver: keys, firewall };
}

/** Leaves out the keys of every plugin: `create` writes those. */
function settableShape(driver: NetworkDriver): Readonly<Record<string, Schema<unknown>>> {
  const common = commonConfigShape();
  const shape = shapeOf(findPlugin(driver)?.config) ?? {};
  return Object.fromEntries(Object.entries(shape).filter(([key]) => !Object.hasOwn(common, key)));
}

function unknownOptionError(driver: NetworkDriver, option: string, keys: readonly string[]): NetworkRequestError {
  const known = [...keys, ...Object.keys(ALIASES).filter((alias) => keys.includes(ALIASES[alias]!))];
  const all = driver === "bridge" ? [...known, ISOLATE] : known;
  return new NetworkRequestError(
    `driver "${driver}" has no option "${option}"${suggestion(option, all) || `: it has ${all.join(", ")}`}`,
  );
}

/** The text is JSON, or a word as in `mode=l3`. */
function parseOption(option: string, text: string, schema: Schema<unknown>): unknown {
  const candidates = [...parseJsonText(text), text];
  const accepted = candidates.find((candidate) => findProblem(candidate, schema, option) === undefined);
  if (accepted !== undefined) return accepted;
  throw new NetworkRequestError(findProblem(candidates[0], schema, option)!);
}

function parseJsonText(text: string): unknown[] {
  try {
    return [JSON.parse(text)];
  } catch {
    return [];
  }
}

function findProblem(value: unknown, schema: Schema<unknown>, option: string): string | undefined {
  try {
    schema.parse(value, `option ${option}`);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

function isTrue(option: string, text: string): boolean {
  if (/^(true|1)$/i.test(text)) return true;
  if (/^(false|0)$/i.test(text)) return false;
  throw new NetworkRequestError(`option ${option} must be true or false: got ${JSON.stringify(text)}`);
}
