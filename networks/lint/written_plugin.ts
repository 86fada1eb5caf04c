import { findPluginProgram } from "../../plugins/lib/protocol/exec.ts";
import { hasPlugin, pluginNames } from "../../plugins/registry.ts";
import { findValue, isJsonObject, type JsonObject } from "../../spec/schema.ts";
import type { SourceText } from "../../spec/source_text.ts";
import { nearestWord } from "../../spec/suggest.ts";
import { attempt } from "./attempt.ts";

/** One plugin of a network, however wrong. */
export interface WrittenPlugin {
  readonly source: SourceText;
  /** Of its object: `plugins[0]`; empty if the file holds nothing else. */
  readonly path: string;
  readonly raw: JsonObject;
  /** Of a misspelt name, the built-in plugin that was meant; empty if it is no text. */
  readonly type: string;
  readonly ipamType: string | undefined;
  readonly writtenType: string;
  readonly writtenIpamType: string | undefined;
}

export function readWrittenPlugin(
  source: SourceText,
  path: string,
  raw: JsonObject,
  directories: readonly string[],
): WrittenPlugin {
  const ipam = findValue(raw, "ipam");
  const writtenType = textOf(findValue(raw, "type"));
  const writtenIpamType = isJsonObject(ipam) ? textOf(findValue(ipam, "type")) || undefined : undefined;
  return {
    source,
    path,
    raw,
    writtenType,
    writtenIpamType,
    type: meantPlugin(writtenType, directories),
    ipamType: writtenIpamType === undefined ? undefined : meantPlugin(writtenIpamType, directories),
  };
}

/** So one misspelt name hides no other mistake. */
function meantPlugin(type: string, directories: readonly string[]): string {
  if (hasPlugin(type) || findProgram(type, directories) !== undefined) return type;
  return nearestWord(type, pluginNames()) ?? type;
}

const textOf = (node: unknown): string => typeof node === "string" ? node : "";

/** Also for names that are none. */
export function findProgram(type: string, directories: readonly string[]): string | undefined {
  return attempt(() => findPluginProgram(type, directories));
}

/** The path of a key of the plugin's object. */
export function pathIn({ path }: WrittenPlugin, inner: string): string {
  return path === "" || inner === "" ? path + inner : inner.startsWith("[") ? path + inner : `${path}.${inner}`;
}
