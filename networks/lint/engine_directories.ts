/** Where container engines look for networks: their default, and what their configurations name. */
import { readText } from "../../ffi/sys/file.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import { attempt } from "./attempt.ts";

const DEFAULT_DIRECTORY = "/etc/cni/net.d";

/** Files in TOML, and the keys by which engines name another directory. */
const ENGINE_CONFIGURATIONS = [
  ["/etc/containerd/config.toml", "conf_dir"],
  ["/var/lib/rancher/k3s/agent/etc/containerd/config.toml", "conf_dir"],
  ["/etc/crio/crio.conf", "network_dir"],
  ["/etc/containers/containers.conf", "network_config_dir"],
] as const;

export function isReadByEngine(path: string): boolean {
  const directory = path.slice(0, path.lastIndexOf("/") + 1);
  const identity = identityOf(directory);
  return identity !== undefined && engineDirectories().some((each) => identityOf(each) === identity);
}

const identityOf = (directory: string): string | undefined => attempt(() => findStat(directory)?.identity);

function engineDirectories(): string[] {
  const configured = ENGINE_CONFIGURATIONS.flatMap(([path, key]) => {
    // Who may not read it cannot know what it says.
    const text = attempt(() => readText(path)) ?? "";
    const setting = new RegExp(`^\\s*${key}\\s*=\\s*["'](/[^"']*)["']`, "gm");
    return Array.from(text.matchAll(setting), ([, directory = ""]) => directory);
  });
  return [DEFAULT_DIRECTORY, ...configured];
}
