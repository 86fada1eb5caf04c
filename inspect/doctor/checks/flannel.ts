/** What flannel has left on a node that has another network of the cluster now. @module */
import { containsIp, ipOf } from "../../../ffi/address.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { programsHere } from "../../../ffi/netns/programs.ts";
import { parentOf } from "../../../ffi/sys/directory.ts";
import { FAMILY_NAMES } from "../../../ffi/nft/family_names.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import { jumpTarget } from "../../../ffi/nft/rule_contents.ts";
import { NFPROTO_IPV4, NFPROTO_IPV6 } from "../../../ffi/nft/uapi.ts";
import type { Link } from "../../../ffi/route/link.ts";
import { listConfFiles } from "../../../runtime/load.ts";
import { shellCommand } from "../../../spec/shell_command.ts";
import { advise, careful, type Finding, warning } from "../finding.ts";
import type { Subject } from "../subject.ts";
import { findStatus } from "./cluster.ts";

export function checkFlannel(subject: Subject): Finding[] {
  return findStatus(subject) ? describeFlannelRemains(subject) : [];
}

const BRIDGE = "cni0";
/** k3s has flannel in its own process. */
const K3S = ["k3s-server", "k3s-agent"];
/** FLANNEL-FWD only accepts: another firewall may drop what comes from other nodes without it. */
const CHAIN = { table: "nat", chain: "FLANNEL-POSTRTG" } as const;

/** Nothing is said while pods of flannel may run, unless k3s runs it: nobody may know that it does. */
export function describeFlannelRemains(subject: Subject): Finding[] {
  const { host, network: { source = "" } } = subject;
  const links = [...host.links.filter(isTunnelOfFlannel), ...findBridge(subject)];
  const removals = removalsOf(host.netns.nft);
  if (links.length + removals.length === 0) return [];
  const programs = programsHere();
  const isUsed = programs.has("flanneld") || links.some(({ index }) => hasPort(subject, index)) ||
    source.startsWith("/") && listConfFiles(parentOf(source)).some((file) => /flannel[^/]*$/.test(file));
  const isOfK3s = K3S.some((name) => programs.has(name));
  if (isUsed && !isOfK3s) return [];
  const names = [
    ...links.map(({ name }) => `"${name}"`),
    ...removals.length > 0 ? [`chain ${CHAIN.chain}`] : [],
  ];
  const commands = [
    ...links.map(({ name = "" }) => shellCommand(["ip", "link", "del", name])),
    ...removals.length > 0 ? [shellCommand(["nft", removals.join("; ")])] : [],
  ];
  if (isOfK3s) {
    return [warning(
      `flannel, which k3s has built in, has made ${names.join(", ")}`,
      careful(advise(
        "start the servers of k3s with --flannel-backend=none: before, its engine looks for networks elsewhere; " +
          "then drain this node, and remove them",
        isUsed ? undefined : commands.join("; "),
      )),
    )];
  }
  const remedy = advise("if nothing runs flannel on this node any more, remove them", commands.join("; "));
  return [warning(`left behind by flannel: ${names.join(", ")}`, careful(remedy))];
}

const isTunnelOfFlannel = ({ name = "", info }: Link): boolean =>
  info?.kind === "vxlan" && /^flannel(-v6)?\.\d+$/.test(name);

/** Other networks have bridges of this name, too. */
function findBridge({ host, bridge, subnets }: Subject): Link[] {
  return host.links.filter(({ name, info, index }) =>
    name === BRIDGE && name !== bridge?.name && info?.kind === "bridge" &&
    host.addresses.some((found) =>
      found.index === index && subnets.some((subnet) => containsIp(subnet, ipOf(found.address)))
    )
  );
}

const hasPort = ({ host }: Subject, index: number): boolean => host.links.some(({ master }) => master === index);

/** In the language of nft(8). */
function removalsOf(nl: Netlink): string[] {
  const { table, chain } = CHAIN;
  return [NFPROTO_IPV4, NFPROTO_IPV6].flatMap((family) => {
    if (!nft.findChain(nl, { family, table }, chain)) return [];
    const place = `${FAMILY_NAMES[family]} ${table}`;
    const callers = nft.listLazyRules(nl, { family, table }).filter((rule) => jumpTarget(rule) === chain);
    return [
      ...callers.map((rule) => `delete rule ${place} ${rule.chain} handle ${rule.handle}`),
      `delete chain ${place} ${chain}`,
    ];
  });
}
