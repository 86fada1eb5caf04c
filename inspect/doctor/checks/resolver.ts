import { nameOfNetnsPath } from "../../../ffi/netns/named.ts";
import { ignoreSystemErrors } from "../../../ffi/sys/error.ts";
import { readText } from "../../../ffi/sys/file.ts";
import { findStat } from "../../../ffi/sys/stat.ts";
import { parseResolvConf } from "../../../spec/resolv_conf.ts";
import { advise, type Finding, warning } from "../finding.ts";
import { shellCommand } from "../../../spec/shell_command.ts";
import type { Subject } from "../subject.ts";

interface ResolverPaths {
  /** `/etc` */
  readonly etc: string;
  /** Where systemd-resolved names the servers that it asks itself. */
  readonly upstream: string;
}

const RESOLV_CONF = "resolv.conf";
const PATHS: ResolverPaths = { etc: "/etc", upstream: `/run/systemd/resolve/${RESOLV_CONF}` };

/** Programs in a named namespace read the host's resolv.conf, but do not reach the host's loopback addresses. */
export function checkResolver(subject: Subject): Finding[] {
  return checkResolverIn(subject, PATHS);
}

export function checkResolverIn({ containers }: Subject, { etc, upstream }: ResolverPaths): Finding[] {
  const servers = listNameservers(`${etc}/${RESOLV_CONF}`);
  if (servers.length === 0 || !servers.every(isLoopback)) return [];
  return containers.flatMap(({ attachment: { netns } }) => {
    const name = nameOfNetnsPath(netns);
    const directory = `${etc}/netns/${name}`;
    if (name === undefined || findStat(`${directory}/${RESOLV_CONF}`)) return [];
    const what = `${etc}/${RESOLV_CONF} names ${servers.join(", ")}, which programs in ${netns} do not reach`;
    const isUsable = listNameservers(upstream).some((server) => !isLoopback(server));
    const write = isUsable
      ? shellCommand(["cp", upstream, `${directory}/`])
      : `echo nameserver ADDRESS >${shellCommand([`${directory}/${RESOLV_CONF}`])}`;
    const command = `${shellCommand(["mkdir", "-p", directory])} && ${write}`;
    return [warning(what, isUsable ? command : advise(`put a name server instead of ADDRESS: ${command}`))];
  });
}

function listNameservers(path: string): readonly string[] {
  const text = ignoreSystemErrors(() => readText(path)) ?? "";
  return parseResolvConf(text).nameservers ?? [];
}

const isLoopback = (server: string): boolean => /^(127\.|::1$)/.test(server);
