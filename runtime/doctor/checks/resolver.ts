import { nameOfNetnsPath } from "../../../ffi/named_netns.ts";
import { ignoreSystemErrors } from "../../../ffi/sys/error.ts";
import { readText } from "../../../ffi/sys/file.ts";
import { findStat } from "../../../ffi/sys/stat.ts";
import { parseResolvConf } from "../../../plugins/host_local/resolv_conf.ts";
import { type Finding, warning } from "../finding.ts";
import type { Subject } from "../subject.ts";

const RESOLV_CONF = "resolv.conf";

/** Programs in a named namespace read the host's resolv.conf, but do not reach the host's loopback addresses. */
export function checkResolver({ containers }: Subject): Finding[] {
  const text = ignoreSystemErrors(() => readText(`/etc/${RESOLV_CONF}`)) ?? "";
  const { nameservers: servers = [] } = parseResolvConf(text);
  if (servers.length === 0 || !servers.every((server) => /^(127\.|::1$)/.test(server))) return [];
  return containers.flatMap(({ attachment: { netns } }) => {
    const name = netns === undefined ? undefined : nameOfNetnsPath(netns);
    const path = `/etc/netns/${name}/${RESOLV_CONF}`;
    if (name === undefined || findStat(path)) return [];
    const what = `/etc/${RESOLV_CONF} names ${servers.join(", ")}, which programs in ${netns} do not reach`;
    return [warning(what, `write "nameserver ADDRESS" to ${path}`)];
  });
}
