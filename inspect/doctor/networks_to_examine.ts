import type { NetworkConfigList } from "../../spec/network_config_list.ts";
import { findNetworks } from "../../networks/list.ts";
import { withoutLoopbacks } from "../../networks/loopbacks.ts";
import { type ConfiguredNetwork, readNetworkFiles } from "../../networks/network_files.ts";
import { Runtime, type RuntimeOptions } from "../../runtime/runtime.ts";

export interface UnusableFile {
  readonly source: string;
  readonly problem: string;
}

/**
 * Every network of the configuration directory, and those that only the cache has. The built-in one counts if something
 * is attached to it, or if there is no other.
 */
export function listNetworksToExamine(
  options: RuntimeOptions,
  directory: string,
): (NetworkConfigList | UnusableFile)[] {
  const runtime = new Runtime(options);
  const attachments = withoutLoopbacks(runtime.attachments());
  const unusable = readNetworkFiles(directory).flatMap(({ file, problem }) =>
    problem === undefined ? [] : [{ source: file, problem }]
  );
  // Unusable files become findings.
  const networks = findNetworks(runtime, directory, attachments, () => {});
  const used = networks.filter(({ list, origin }) =>
    origin !== "built-in" || attachments.some(({ network }) => network === list.name)
  );
  return [...(used.length + unusable.length === 0 ? networks : used).map(withSource), ...unusable];
}

function withSource({ list, origin }: ConfiguredNetwork): NetworkConfigList {
  if (origin === "built-in") return { ...list, source: "the built-in default network" };
  return origin === "attachment" ? { ...list, source: "the cache of attachments" } : list;
}
