/** A parameter of the node, without which pods on a bridge do not reach all Services. @module */
import { ignoreErrors } from "../ffi/sys/error.ts";
import { openReadWrite } from "../ffi/sys/file.ts";
import { ensureSysctl, findSysctl, sysctlWord } from "../ffi/sys/sysctl.ts";
import { bridgeNetfilterSysctl } from "../plugins/lib/links/bridge_netfilter.ts";
import { configuredSubnets, distinctFamilies } from "../plugins/lib/links/reachability.ts";
import { CniError, Code } from "../spec/error.ts";
import { type NetworkConfigList, parseNetworkConfigList } from "../spec/network_config_list.ts";
import type { NetworkFileInstall } from "./engine_file.ts";

/** Changes nothing. @returns sets what is not set @throws {CniError} if that is not possible here */
export function prepareBridgedServices({ text, path }: NetworkFileInstall): () => void {
  const names = familiesOnBridges(parseNetworkConfigList(text, path)).map(bridgeNetfilterSysctl);
  const unset = names.filter((name) => findSysctl(name) !== "1");
  const missing = unset.filter((name) => findSysctl(name) === undefined);
  if (missing.length > 0) throw missingError(missing, path);
  const closed = unset.filter((name) => !isWritable(name));
  if (closed.length > 0) throw closedError(closed, path);
  return () => {
    for (const name of unset) ensureSysctl(name, "1");
  };
}

function familiesOnBridges({ plugins }: NetworkConfigList): (4 | 6)[] {
  return distinctFamilies(plugins.filter(({ type }) => type === "bridge").flatMap(({ raw }) => configuredSubnets(raw)));
}

function isWritable(name: string): boolean {
  using file = ignoreErrors(["EROFS", "EACCES", "EPERM"], () => openReadWrite(`/proc/sys/${name}`));
  return file !== undefined;
}

function missingError(names: readonly string[], path: string): CniError {
  const advice = "load the module: echo br_netfilter >/etc/modules-load.d/br_netfilter.conf; modprobe br_netfilter";
  return unreachedError(path, `has no ${names.map(sysctlWord).join(" and no ")}`, advice);
}

function closedError(names: readonly string[], path: string): CniError {
  const values = names.map((name) => `${sysctlWord(name)} = ${findSysctl(name)}`);
  const settings = names.map((name) => `${sysctlWord(name)}=1`);
  // sysctl prints lines that it reads at boot.
  const advice = `set it, also for the next boot: sysctl -w ${settings.join(" ")} | tee /etc/sysctl.d/99-cni.conf`;
  return unreachedError(path, `has ${values.join(" and ")}, which cannot be set here`, advice);
}

function unreachedError(path: string, problem: string, advice: string): CniError {
  return new CniError(
    Code.TryAgainLater,
    `Cannot install the network "${path}": the node ${problem}, ` +
      "so pods would not reach Services whose endpoint is on their own node",
    { details: `on the node, ${advice}` },
  );
}
