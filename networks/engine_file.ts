import type { Cidr } from "../ffi/address.ts";
import { installBytes } from "../ffi/sys/atomic_install.ts";
import { ensureDirectory } from "../ffi/sys/directory.ts";
import { ignoreErrors } from "../ffi/sys/error.ts";
import { readText } from "../ffi/sys/file.ts";
import { needsRanges } from "./lint/given_ranges.ts";
import { lintText } from "./lint/lint.ts";
import { networkFileText } from "./create.ts";
import { findNameIn, readNetworkFiles } from "./network_files.ts";
import { distinctFamilies } from "../plugins/lib/links/reachability.ts";
import { CniError, Code } from "../spec/error.ts";
import { parseJson } from "../spec/jsonc.ts";
import { type NetworkConfigList, parseNetworkConfigList, type PluginEntry } from "../spec/network_config_list.ts";
import { findValue, type JsonObject } from "../spec/schema.ts";
import { findSyntaxProblems } from "../spec/source_text.ts";

export interface NetworkFileOptions {
  /** The path of a .conflist file, as messages name it. The name of the file is kept. */
  readonly source: string;
  readonly text: string;
  /** Engines look there for configurations. */
  readonly directory: string;
  readonly pluginDirectories: readonly string[];
  /** For a host-local without any. A plugin that makes no default route gets one for each family, unless it has routes. */
  readonly ranges?: readonly Cidr[];
  /** Bytes, for the plugin that gives a host-local its addresses and has no `mtu`; absent: it stays as it is. */
  readonly mtu?: number;
  log(message: string): void;
}

export interface NetworkFileInstall {
  readonly path: string;
  readonly text: string;
}

/** Changes nothing. @throws {CniError} if engines could not use it */
export function prepareNetworkFile(options: NetworkFileOptions): NetworkFileInstall {
  const { source, text, directory, ranges, mtu } = options;
  const name = source.slice(source.lastIndexOf("/") + 1);
  if (!name.endsWith(".conflist")) {
    throw unusable(source, `its name must end with ".conflist"`, "engines read no other lists of plugins");
  }
  const path = `${directory}/${name}`;
  const list = parseNetworkConfigList(text, source);
  const without = list.plugins.flatMap((plugin, i) => needsRanges(plugin) ? [i] : []);
  refuseProblems(options);
  refuseSecondFile(list, path, options);
  if (without.length > 0 && !ranges) {
    throw unusable(source, `plugins[${without[0]}].ipam has no "ranges"`, "write them: only a cluster's node has some");
  }
  const withMtu = mtu === undefined ? [] : list.plugins.flatMap((plugin, i) => needsMtu(plugin) ? [i] : []);
  if (without.length === 0 && withMtu.length === 0) return { path, text: withoutComments(text) };
  const plugins = list.plugins.map(({ raw }, i) => ({
    ...raw,
    ...withMtu.includes(i) && { mtu: mtu! },
    ...without.includes(i) && { ipam: withRanges(raw, ranges!) },
  }));
  return { path, text: networkFileText({ ...parseJson(text) as JsonObject, plugins }) };
}

/** @returns whether the file was another before */
export function installNetworkFile({ path, text }: NetworkFileInstall): boolean {
  if (ignoreErrors(["ENOENT"], () => readText(path)) === text) return false;
  ensureDirectory(path.slice(0, path.lastIndexOf("/")));
  // Other users' engines read the directory too.
  installBytes(new TextEncoder().encode(text), path, 0o644);
  return true;
}

function unusable(source: string, problem: string, details: string): CniError {
  return new CniError(Code.InvalidConfig, `Cannot install the network "${source}": ${problem}`, { details });
}

/** Whether {@linkcode NetworkFileOptions.mtu} is for this plugin. */
export const needsMtu = ({ raw, ipamType }: PluginEntry): boolean =>
  ipamType === "host-local" && findValue(raw, "mtu") === undefined;

/** Warnings are the user's to judge. */
function refuseProblems({ source, text, pluginDirectories, log }: NetworkFileOptions): void {
  const problems = lintText(source, text, { pluginDirectories, givesRanges: true });
  const own = problems.filter(({ severity }) => severity !== "note");
  const error = own.find(({ severity }) => severity === "error");
  if (error) {
    throw unusable(`${source}:${error.line}:${error.column}`, error.message, error.suggestion ?? "see cni lint");
  }
  for (const { line, column, message } of own) log(`${source}:${line}:${column}: ${message}`);
}

/** Engines would use the first of them, whichever is newer. */
function refuseSecondFile({ name }: NetworkConfigList, path: string, { source, directory }: NetworkFileOptions): void {
  const other = readNetworkFiles(directory).find((file) => file.file !== path && findNameIn(file) === name);
  if (other) throw unusable(source, `"${other.file}" has a network "${name}" too`, "remove one of the files");
}

/** Leaves the file as it stands, unless engines could not read it. */
function withoutComments(text: string): string {
  const isJson = findSyntaxProblems(text, { strict: true }).length === 0;
  return isJson ? text : networkFileText(parseJson(text) as JsonObject);
}

function withRanges(plugin: JsonObject, cidrs: readonly Cidr[]): JsonObject {
  const ipam = findValue(plugin, "ipam") as JsonObject;
  const hasRoutes = findValue(ipam, "routes") !== undefined || findValue(plugin, "isDefaultGateway") === true;
  const routes = distinctFamilies(cidrs).map((family) => ({ dst: family === 4 ? "0.0.0.0/0" : "::/0" }));
  return { ...ipam, ranges: cidrs.map((subnet) => [{ subnet }]), ...!hasRoutes && { routes } };
}
