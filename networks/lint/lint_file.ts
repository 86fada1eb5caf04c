import { SystemError } from "../../ffi/sys/error.ts";
import type { AnyPlugin } from "../../plugins/lib/protocol/context.ts";
import { findPluginProgram } from "../../plugins/lib/protocol/exec.ts";
import { findPlugin, hasPlugin, pluginNames } from "../../plugins/registry.ts";
import { excerpt } from "../../spec/jsonc.ts";
import { isSinglePluginDocument, listReaders, parseConfigurationText } from "../../spec/network_config_list.ts";
import { findValue, isJsonObject, type JsonObject } from "../../spec/schema.ts";
import { createSourceText, type SourceText } from "../../spec/source_text.ts";
import { nearestWord } from "../../spec/suggest.ts";
import { LATEST, type Version } from "../../spec/version.ts";
import { findPluginFiles, readConfiguration, readConfigurationFromStdin } from "../../runtime/load.ts";

/** One plugin of a network, however wrong. */
export interface LintPlugin {
  readonly source: SourceText;
  /** The path of its object: `plugins[0]`; empty if the file holds nothing else. */
  readonly path: string;
  readonly raw: JsonObject;
  /** For a misspelt name, this is the built-in plugin that was meant; empty if it is no text. */
  readonly type: string;
  readonly ipamType: string | undefined;
  readonly writtenType: string;
  readonly writtenIpamType: string | undefined;
}

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

export const STANDARD_INPUT = "standard input";

/** @param wait for a pipe's writer, as of `<(…)` */
export function readLintFile(path: string, pluginDirectories: readonly string[], wait: boolean): LintFile {
  const { source, document, syntaxError } = readSource(path, wait);
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

function readSource(path: string, wait: boolean): Pick<LintFile, "source" | "document" | "syntaxError"> {
  let text = "";
  try {
    text = path === STANDARD_INPUT ? readConfigurationFromStdin() : readConfiguration(path, wait);
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

function readLintPlugin(
  source: SourceText,
  path: string,
  raw: JsonObject,
  directories: readonly string[],
): LintPlugin {
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

export function attempt<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}

export function pathIn({ path }: LintPlugin, inner: string): string {
  return path === "" || inner === "" ? path + inner : inner.startsWith("[") ? path + inner : `${path}.${inner}`;
}

/** Finds it also if a program of that name is called: its keys and values are the same. */
export function builtinOf(type: string | undefined): AnyPlugin | undefined {
  return type === undefined ? undefined : findPlugin(type);
}

/** A text that is no name finds nothing. */
export function findProgram(type: string, directories: readonly string[]): string | undefined {
  return attempt(() => findPluginProgram(type, directories));
}

/** `network "web" (/etc/cni/net.d/10-web.conflist:7:9)` */
export function describePlace({ name, source }: LintFile, path: string): string {
  const { line, column } = source.span(path, "value");
  return `network ${excerpt(name)} (${source.path}:${line}:${column})`;
}
