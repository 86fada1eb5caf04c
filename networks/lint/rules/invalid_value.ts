import type { AnyPlugin } from "../../../plugins/lib/protocol/context.ts";
import { CniError, ConfigError } from "../../../spec/error.ts";
import { pathSegments } from "../../../spec/jsonc.ts";
import { listReaders, pluginEntrySchema, readEntryNodes } from "../../../spec/network_config_list.ts";
import { type JsonObject, jsonObject } from "../../../spec/schema.ts";
import { configurationProblems, schemaProblems } from "../../../spec/schema_problems.ts";
import { suggestion } from "../../../spec/suggest.ts";
import { attempt } from "../attempt.ts";
import { builtinOf, type LintFile, type LintPlugin } from "../lint_file.ts";
import { pathIn } from "../written_plugin.ts";
import type { LintFinding, LintRule } from "../rule.ts";
import { findContradiction, type ValidatedNetwork } from "../validate_plugin.ts";

export const invalidValueRule: LintRule = {
  name: "invalid-value",
  severity: "error",
  about: "A value that no ADD accepts, or a key that is missing. Values of other programs' plugins are not known.",
  bad: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [
    { "type": "macvlan", "master": "eth0", "mode": "bridg", "mtu": "1400" },
    { "type": "vrf" }
  ]
}`,
    },
    finds: [
      '10-web.conflist:5:52 plugins[0].mode must be "bridge", "private", "vepa" or "passthru": got "bridg"',
      '10-web.conflist:5:68 plugins[0].mtu must be a whole number from 0 to 2147483647: got "1400"',
      "10-web.conflist:6:5 plugins[1].vrfname must be an interface name of 1 to 15 bytes: got nothing",
    ],
  },
  good: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [
    { "type": "macvlan", "master": "eth0", "mode": "bridge", "mtu": 1400 },
    { "type": "vrf", "vrfname": "blue" }
  ]
}`,
    },
  },
  find(file) {
    if (file.syntaxError !== undefined) return [];
    const { source, list, isSinglePlugin } = file;
    if (!list) return [toFinding(source, errorOf(() => jsonObject.parse(file.document)) as ConfigError)];
    return [
      ...Object.entries(listReaders).flatMap(([key, read]) => {
        const error = errorOf(() => read(list));
        return error ? [toFinding(source, error, key)] : [];
      }),
      ...isSinglePlugin ? [] : entryProblems(file, list),
      ...file.plugins.flatMap((plugin) => pluginProblems(plugin, file)),
    ];
  },
};

/** The objects of `plugins` are checked elsewhere. */
function entryProblems(file: LintFile, list: JsonObject): LintFinding[] {
  const error = errorOf(() => readEntryNodes(list)) ?? missingPluginsError(file, list);
  if (error) return [toFinding(file.source, error)];
  return readEntryNodes(list).flatMap((node, i) => {
    const problem = errorOf(() => jsonObject.parse(node, `plugins[${i}]`));
    return problem ? [toFinding(file.source, problem)] : [];
  });
}

function missingPluginsError({ plugins, unreadable }: LintFile, list: JsonObject): ConfigError | undefined {
  if (Object.hasOwn(list, "plugins") || plugins.length + unreadable.length > 0) return undefined;
  return new ConfigError("plugins", "an array with at least one plugin", "nothing");
}

function pluginProblems(plugin: LintPlugin, file: LintFile): LintFinding[] {
  const definitions = [plugin.type, plugin.ipamType].flatMap((type) => builtinOf(type) ?? []);
  const ofSchemas = [
    ...schemaProblems(pluginEntrySchema, plugin.raw),
    ...definitions.flatMap(({ config }) => configurationProblems(config, plugin.raw)),
  ];
  const all = [...ofSchemas, ...definitions.flatMap((found) => contradictions(found, plugin, file, ofSchemas))];
  const first = (error: ConfigError, i: number) => all.findIndex(({ path }) => path === error.path) === i;
  return all.filter(first).map((error) => toFinding(plugin.source, error, "", plugin));
}

/** Removes the key of each error to find the next one. */
function contradictions(
  definition: AnyPlugin,
  { raw }: LintPlugin,
  network: ValidatedNetwork,
  known: readonly ConfigError[],
): ConfigError[] {
  const found: ConfigError[] = [];
  const topKey = ({ path }: ConfigError) => String(pathSegments(path)[0] ?? "");
  for (const removed = new Set(known.map(topKey));;) {
    const rest = Object.fromEntries(Object.entries(raw).filter(([key]) => !removed.has(key)));
    const error = findContradiction(definition, rest, network);
    if (!error || removed.has(topKey(error))) return found;
    found.push(error);
    removed.add(topKey(error));
  }
}

function errorOf(read: () => unknown): Error | undefined {
  try {
    read();
    return undefined;
  } catch (error) {
    if (error instanceof ConfigError || error instanceof CniError) return error;
    throw error;
  }
}

/** @param key the path of an error that has none */
function toFinding(source: LintFinding["source"], error: Error, key = "", plugin?: LintPlugin): LintFinding {
  if (!(error instanceof ConfigError)) {
    const { message, details } = CniError.from(error);
    return { source, path: key, message: details ? `${message}; ${details}` : message };
  }
  const path = plugin ? pathIn(plugin, error.path) : error.path;
  const message = `${path || "the document"} must be ${error.expected}: got ${error.got}`;
  return { source, path, message, suggestion: valueSuggestion(error) };
}

/** For a number or boolean in quotes, a misspelt word, and ranges that are in no set. */
function valueSuggestion({ path, expected, got }: ConfigError): string | undefined {
  if (/[.]ranges\[[0-9]+\]$/i.test(path) && got.startsWith("{")) return 'write a list in a list: "ranges": [[{…}]]';
  const text = attempt(() => JSON.parse(got));
  if (typeof text !== "string") return undefined;
  const isLiteral = /^(a whole number|true or false)/.test(expected) && /^(-?[0-9]+|true|false)$/.test(text);
  if (isLiteral) return `write ${text} without quotes`;
  const words = [...expected.matchAll(/"([a-z][\w-]*)"/gi)].map(([, word]) => word!);
  return suggestion(text, words).replace(/^; /, "") || undefined;
}
