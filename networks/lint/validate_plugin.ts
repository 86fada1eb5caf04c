import type { AnyPlugin } from "../../plugins/lib/protocol/context.ts";
import { ConfigError } from "../../spec/error.ts";
import { capabilitiesSchema, type PluginConfig } from "../../spec/plugin_config.ts";
import { findValue, isJsonObject, type JsonObject } from "../../spec/schema.ts";
import { LATEST, type Version } from "../../spec/version.ts";
import { attempt } from "./attempt.ts";

export interface ValidatedNetwork {
  readonly name?: string | undefined;
  readonly cniVersion?: Version;
}

/** What the plugin refuses of a configuration that its schema accepts, or what its schema refuses. */
export function findContradiction(
  { config: schema, validate, name: type }: AnyPlugin,
  raw: JsonObject,
  { name = "", cniVersion = LATEST }: ValidatedNetwork = {},
): ConfigError | undefined {
  const objectAt = (node: JsonObject, key: string) => {
    const member = findValue(node, key);
    return isJsonObject(member) ? member : {};
  };
  const ipamType = findValue(objectAt(raw, "ipam"), "type");
  const pluginConfig: PluginConfig = {
    name,
    cniVersion,
    type,
    raw,
    args: {},
    runtimeConfig: objectAt(raw, "runtimeConfig"),
    ...typeof ipamType === "string" && ipamType !== "" && { ipamType },
    capabilities: attempt(() => capabilitiesSchema.parse(objectAt(raw, "capabilities"))) ?? {},
  };
  try {
    const config = schema.parse(raw);
    validate?.({ config, pluginConfig });
    return undefined;
  } catch (error) {
    if (error instanceof ConfigError) return error;
    throw error;
  }
}
