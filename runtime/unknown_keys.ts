import { locate, parseJson } from "../spec/jsonc.ts";
import type { NetworkConfigList } from "../spec/network_config_list.ts";
import type { JsonObject } from "../spec/schema.ts";
import { suggestion } from "../spec/suggest.ts";
import {
  describeUnknownKey,
  type FindConfigSchema,
  findUnknownArgumentKeys,
  findUnknownKeysAmong,
  findUnknownPluginKeys,
  type UnknownKey,
} from "../spec/unknown_keys.ts";

/** Keys of a list itself (SPEC §Configuration format), matched exactly. */
const LIST_KEYS = [
  "cniVersion",
  "cniVersions",
  "name",
  "plugins",
  "disableCheck",
  "disableGC",
  "loadOnlyInlinedPlugins",
];
/** podman and nerdctl keep their data there. */
const ENGINE_KEYS = ["args", "nerdctlID", "nerdctlLabels"];

/**
 * Makes `network "web": plugins[0].isGatway is not read; did you mean "isGateway"? (web.conflist:4:7)`.
 *
 * @param isProgram whether a program is called, which may have other keys
 */
export function findUnknownKeys(
  list: NetworkConfigList,
  findConfigSchema: FindConfigSchema,
  isProgram: (type: string) => boolean = () => false,
): string[] {
  const document = parseJson(list.text) as JsonObject;
  // A file may hold only a plugin's object.
  const isList = Object.hasOwn(document, "plugins");
  const unknownKeys = [
    ...isList ? findUnknownListKeys(document) : [],
    ...list.plugins.flatMap((entry, i) =>
      findUnknownPluginKeys(entry, findConfigSchema, isProgram, isList ? `plugins[${i}]` : "")
    ),
  ];
  return unknownKeys.map((unknownKey) => {
    const { line, column } = list.source ? locate(list.text, unknownKey.path) ?? {} : {};
    const location = line ? ` (${list.source}:${line}:${column})` : "";
    return `network "${list.name}": ${describeUnknownKey(unknownKey)}${location}`;
  });
}

export function findUnknownListKeys(document: JsonObject): UnknownKey[] {
  return findUnknownKeysAmong(Object.keys(document).filter((key) => !ENGINE_KEYS.includes(key)), LIST_KEYS);
}

export function findUnknownCapabilities(
  { name, plugins }: NetworkConfigList,
  capabilityArgs: JsonObject,
  findConfigSchema: FindConfigSchema,
  isProgram: (type: string) => boolean = () => false,
): string[] {
  const declared = plugins.flatMap(({ capabilities }) => capabilities);
  return Object.entries(capabilityArgs).flatMap(([capability, value]) => {
    const declaring = plugins.filter(({ capabilities }) => capabilities.includes(capability));
    if (declaring.length === 0) {
      const hint = suggestion(capability, declared);
      return [`network "${name}": no plugin has capability "${capability}", so its arguments are not read${hint}`];
    }
    return findUnknownArgumentKeys(declaring, findConfigSchema, isProgram, capability, value).map((unknownKey) =>
      `network "${name}": of the capability arguments, ${describeUnknownKey(unknownKey)}`
    );
  });
}
