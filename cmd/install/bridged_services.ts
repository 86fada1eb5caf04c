/** A parameter of the node, without which pods on a bridge do not reach all Services. @module */
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { openReadWrite } from "../../ffi/sys/file.ts";
import { ensureSysctl, findSysctl, sysctlWord } from "../../ffi/sysctl.ts";
import { bridgeNetfilterSysctl } from "../../plugins/lib/links/bridge_netfilter.ts";
import { configuredSubnets, distinctFamilies } from "../../plugins/lib/links/reachability.ts";
import { CniError, Code } from "../../spec/error.ts";
import { type NetworkConfigList, parseNetworkConfigList } from "../../spec/network_config_list.ts";
import type { NetworkFileInstall } from "./network_file.ts";

/** Changes nothing. @returns sets what is not set @throws {CniError} if that is not possible here */
export function prepareBridgedServices({ text, path }: NetworkFileInstall): () => void {
  const names = familiesOnBridges(parseNetworkConfigList(text, path)).map(bridgeNetfilterSysctl);
  const unset = names.filter((name) => findSysctl(name) !== "1");
  for (const name of unset) requireWritable(name, path);
  return () => {
    for (const name of unset) ensureSysctl(name, "1");
  };
}

function familiesOnBridges({ plugins }: NetworkConfigList): (4 | 6)[] {
  return distinctFamilies(plugins.filter(({ type }) => type === "bridge").flatMap(({ raw }) => configuredSubnets(raw)));
}

function requireWritable(name: string, path: string): void {
  const value = findSysctl(name);
  using file = value === undefined
    ? undefined
    : ignoreErrors(["EROFS", "EACCES", "EPERM"], () => openReadWrite(`/proc/sys/${name}`));
  if (file) return;
  const word = sysctlWord(name);
  const problem = value === undefined ? `has no ${word}` : `has ${word} = ${value}, which cannot be set here`;
  const consequence = "so pods would not reach Services whose endpoint is on their own node";
  throw new CniError(
    Code.TryAgainLater,
    `Cannot install the network "${path}": the node ${problem}, ${consequence}`,
    {
      details: value === undefined
        ? "on the node, load the module: echo br_netfilter >/etc/modules-load.d/cni.conf; modprobe br_netfilter"
        : `on the node, set it: echo ${word}=1 >/etc/sysctl.d/99-cni.conf; sysctl -w ${word}=1`,
    },
  );
}
