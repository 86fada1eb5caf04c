import { SystemError } from "../../ffi/sys/error.ts";
import type { AnyPlugin } from "../../plugins/lib/protocol/context.ts";
import type { NetworkModel } from "../../plugins/lib/model/network_model.ts";
import { findModel, findPlugin } from "../../plugins/registry.ts";
import { excerpt } from "../../spec/jsonc.ts";
import { isSinglePluginDocument, listReaders, parseConfigurationText } from "../../spec/network_config_list.ts";
import { isJsonObject, type JsonObject } from "../../spec/schema.ts";
import { createSourceText, type SourceText } from "../../spec/source_text.ts";
import { LATEST, type Version } from "../../spec/version.ts";
import { findPluginFiles, readConfiguration, readConfigurationFromStdin } from "../../runtime/load.ts";
import { attempt } from "./attempt.ts";
import { type ConfiguredRange, readRanges } from "./ranges.ts";
import { readWrittenPlugin, type WrittenPlugin } from "./written_plugin.ts";

/** A file of the configuration directory, however wrong. */
export interface LintFile {
  readonly source: SourceText;
  /** Why it cannot be read, or is no JSON. */
  readonly syntaxError: string | undefined;
  readonly document: unknown;
  readonly list: JsonObject | undefined;
  /** Whether it holds one plugin's object, and no list. */
  readonly isSinglePlugin: boolean;
  /** Of the network, if it has a usable one. */
  readonly name: string | undefined;
  /** The newest if it is unusable. */
  readonly cniVersion: Version;
  readonly plugins: readonly LintPlugin[];
  /** Plugins in files of their own that are no JSON. */
  readonly unreadable: readonly LintFile[];
}

/** What a plugin says, and what that means. */
export interface LintPlugin extends WrittenPlugin {
  readonly ranges: readonly ConfiguredRange[];
  /** Absent for plugins that connect no containers to the host, and unusable keys. */
  readonly network: NetworkModel | undefined;
  /** Containers on one segment, a bridge's VLAN, reach each other without a router. */
  readonly segment: string | undefined;
  readonly needsRouter: boolean;
}

export const STANDARD_INPUT = "standard input";

/** @param wait for a pipe's writer, as of `<(…)` */
export const readLintFile = (path: string, pluginDirectories: readonly string[], wait: boolean): LintFile =>
  toLintFile(path, readSource(path, wait), pluginDirectories);

/** @param path which nothing is read from */
export const lintFileOf = (path: string, text: string, pluginDirectories: readonly string[]): LintFile =>
  toLintFile(path, parseSource(path, () => text), pluginDirectories);

function toLintFile(
  path: string,
  { source, document, syntaxError }: ParsedSource,
  pluginDirectories: readonly string[],
): LintFile {
  const list = isJsonObject(document) ? document : undefined;
  const isSinglePlugin = list !== undefined && isSinglePluginDocument(list);
  const name = list && attempt(() => listReaders.name(list));
  const toPlugin = (owner: SourceText, innerPath: string, raw: JsonObject) =>
    readLintPlugin(owner, innerPath, raw, pluginDirectories);
  const isComplete = path === STANDARD_INPUT || isSinglePlugin || list === undefined ||
    attempt(() => listReaders.loadOnlyInlinedPlugins(list));
  const ownFiles = isComplete || name === undefined
    ? []
    : (attempt(() => findPluginFiles(path, name)) ?? []).map((file) => readSource(file, false));
  return {
    source,
    syntaxError,
    document,
    list,
    isSinglePlugin,
    name,
    cniVersion: list ? attempt(() => listReaders.cniVersion(list)) ?? LATEST : LATEST,
    plugins: [
      ...isSinglePlugin
        ? [toPlugin(source, "", list)]
        : inlineNodes(list).map(([path, raw]) => toPlugin(source, path, raw)),
      ...ownFiles.flatMap((own) => isJsonObject(own.document) ? [toPlugin(own.source, "", own.document)] : []),
    ],
    unreadable: ownFiles.filter((own) => own.syntaxError !== undefined).map((own) => ({
      ...own,
      list: undefined,
      isSinglePlugin: true,
      name: undefined,
      cniVersion: LATEST,
      plugins: [],
      unreadable: [],
    })),
  };
}

type ParsedSource = Pick<LintFile, "source" | "document" | "syntaxError">;

const readSource = (path: string, wait: boolean): ParsedSource =>
  parseSource(path, () => path === STANDARD_INPUT ? readConfigurationFromStdin() : readConfiguration(path, wait));

function parseSource(path: string, read: () => string): ParsedSource {
  let text = "";
  try {
    text = read();
    const document = parseConfigurationText(text, path);
    return { source: createSourceText(path, text), document, syntaxError: undefined };
  } catch (error) {
    if (!(error instanceof SyntaxError || error instanceof SystemError)) throw error;
    return { source: createSourceText(path, text), document: undefined, syntaxError: error.message };
  }
}

function inlineNodes(list: JsonObject | undefined): (readonly [path: string, raw: JsonObject])[] {
  if (!list || !Array.isArray(list.plugins)) return [];
  return list.plugins.flatMap((node: unknown, i) => isJsonObject(node) ? [[`plugins[${i}]`, node]] as const : []);
}

function readLintPlugin(...written: Parameters<typeof readWrittenPlugin>): LintPlugin {
  const plugin = readWrittenPlugin(...written);
  const network = attempt(() => findModel(plugin.type)?.network?.(plugin.raw));
  const bridge = network?.bridge;
  const segment = bridge && JSON.stringify([bridge.name, bridge.vlan]);
  const needsRouter = attempt(() => findModel(plugin.type)?.needsRouter) ?? false;
  return { ...plugin, ranges: readRanges(plugin), network, segment, needsRouter };
}

/** Finds it also if a program of that name is called: its keys and values are the same. */
export function builtinOf(type: string | undefined): AnyPlugin | undefined {
  return type === undefined ? undefined : findPlugin(type);
}

/** `network "web" (/etc/cni/net.d/10-web.conflist:7:9)` */
export function describePlace({ name, source }: LintFile, path: string): string {
  const { line, column } = source.span(path, "value");
  return `network ${excerpt(name)} (${source.path}:${line}:${column})`;
}
