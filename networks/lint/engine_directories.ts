/** Where container engines look for networks and plugins: their default, and what their configurations name. */
import { readText } from "../../ffi/sys/file.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import { attempt } from "./attempt.ts";

const DEFAULT_DIRECTORY = "/etc/cni/net.d";

/** Files in TOML, and the keys by which engines name other directories. */
const ENGINE_CONFIGURATIONS = [
  { path: "/etc/containerd/config.toml", networks: "conf_dir", plugins: "bin_dirs?" },
  { path: "/var/lib/rancher/k3s/agent/etc/containerd/config.toml", networks: "conf_dir", plugins: "bin_dirs?" },
  { path: "/etc/crio/crio.conf", networks: "network_dir", plugins: "plugin_dirs" },
  { path: "/etc/containers/containers.conf", networks: "network_config_dir", plugins: "cni_plugin_dirs" },
] as const;

export function isReadByEngine(path: string): boolean {
  const configured = ENGINE_CONFIGURATIONS.flatMap(({ path, networks }) => directoriesIn(readSettings(path), networks));
  return isIn(path, [DEFAULT_DIRECTORY, ...configured]);
}

export interface LackingEngine {
  /** The path of its configuration. */
  readonly configuration: string;
  /** Where it looks for plugins. */
  readonly directories: readonly string[];
  /** Plugins that are not there. */
  readonly types: readonly string[];
}

/** Engines that read this network's file, and whose configurations name no directory with these plugins. */
export function findLackingEngines(path: string, types: readonly string[]): LackingEngine[] {
  return ENGINE_CONFIGURATIONS.flatMap(({ path: configuration, networks, plugins }) => {
    const text = readSettings(configuration);
    const directories = directoriesIn(text, plugins);
    const ofNetworks = directoriesIn(text, networks);
    if (directories.length === 0 || !isIn(path, ofNetworks.length > 0 ? ofNetworks : [DEFAULT_DIRECTORY])) return [];
    const missing = types.filter((type) => !directories.some((each) => attempt(() => findStat(`${each}/${type}`))));
    return missing.length > 0 ? [{ configuration, directories, types: missing }] : [];
  });
}

function isIn(path: string, directories: readonly string[]): boolean {
  const identity = identityOf(path.slice(0, path.lastIndexOf("/") + 1));
  return identity !== undefined && directories.some((each) => identityOf(each) === identity);
}

const identityOf = (directory: string): string | undefined => attempt(() => findStat(directory)?.identity);

/** Who may not read it cannot know what it says. */
const readSettings = (path: string): string => attempt(() => readText(path)) ?? "";

/** @param key a pattern */
function directoriesIn(text: string, key: string): string[] {
  const setting = new RegExp(`^\\s*${key}\\s*=\\s*(\\[[^\\]]*\\]|["'][^"']*["'])`, "gm");
  return Array.from(text.matchAll(setting), ([, value = ""]) => value)
    .flatMap((value) => Array.from(value.matchAll(/["'](\/[^"']*)["']/g), ([, directory = ""]) => directory));
}
