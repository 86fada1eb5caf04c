import { formatHolder, listHeldAddresses, readInventory } from "../../../plugins/host_local/inventory.ts";
import { parseAlias } from "../../../plugins/lib/protocol/owner.ts";
import { abbreviate, broken, type Finding, ok, warning } from "../finding.ts";
import { shellCommand } from "../shell_command.ts";
import { reattachCommand } from "../reattach.ts";
import { openReservations } from "../reservations.ts";
import type { Subject } from "../subject.ts";
import { ipOf } from "../../../ffi/address.ts";
import type { NetworkAttachment } from "../../attachments.ts";
import { networkDirectoryOf } from "../../../plugins/host_local/network_directory.ts";
import { hostLocalConfigs } from "../../networks/users.ts";

/** Attachments, their namespaces, their reservations and their links: each without another. */
export function checkLeakedState(subject: Subject): Finding[] {
  const problems = [
    ...subject.attachments.flatMap((attachment) => checkAttachment(subject, attachment)),
    ...checkReservations(subject),
    ...checkReserved(subject),
    ...checkUnknownLinks(subject),
  ];
  return problems.length > 0 ? problems : [ok("no attachment and no reservation was left behind")];
}

function checkAttachment({ network, netnsPath }: Subject, attachment: NetworkAttachment): Finding[] {
  const { state, reason, containerId, ifname, netns = "" } = attachment;
  const mend = detachCommand(network.name, containerId, ifname);
  const whose = `"${ifname}" of container "${containerId}"`;
  if (state === "gone") {
    const what = `${whose} is attached, but ${reason}`;
    return [netnsPath === undefined ? warning(what, mend) : broken(what, mend)];
  }
  if (state !== "unfinished") return [];
  return [warning(`the ADD of ${whose} has not ended${netns && ` (${netns})`}`, mend)];
}

/** An address without a reservation is given to the next container too. */
function checkReserved({ network, containers }: Subject): Finding[] {
  const problemOf = openReservations(network);
  return containers.flatMap(({ attachment, owner, ips }) =>
    ips.flatMap(({ address }) => {
      const problem = problemOf(owner, ipOf(address));
      return problem === undefined ? [] : [broken(problem, `${reattachCommand(attachment)} # its address may change`)];
    })
  );
}

/** Links of the network that no attachment of the cache has: its file was lost, or the cache is another one. */
function checkUnknownLinks({ network, host, netnsPath, attachments, runtime: { cacheDirectory } }: Subject): Finding[] {
  if (netnsPath !== undefined) return [];
  const known = new Set(attachments.map(formatHolder));
  const unknown = host.links.flatMap(({ alias }) => parseAlias(alias) ?? []).filter((owner) =>
    owner.network === network.name && !known.has(formatHolder(owner))
  );
  const [first] = unknown;
  if (!first) return [];
  const names = abbreviate(unknown.map(({ containerId, ifname }) => `"${ifname}" of container "${containerId}"`));
  const mend = `if an engine has another cache, name it with --cache-dir; if it is gone: ${
    detachCommand(network.name, first.containerId, first.ifname)
  }`;
  return [
    warning(`${names} ${unknown.length === 1 ? "is" : "are"} attached, but not in ${cacheDirectory}/results`, mend),
  ];
}

/** An engine has a cache of its own, so a host veth counts as an attachment too. */
function checkReservations(subject: Subject): Finding[] {
  const { network, host, netnsPath } = subject;
  if (netnsPath !== undefined) return [];
  const owners = host.links.flatMap(({ alias }) => parseAlias(alias) ?? []).filter((owner) =>
    owner.network === network.name
  );
  const known = new Set([...subject.attachments, ...owners].map(formatHolder));
  const held = hostLocalConfigs(network).flatMap((config) =>
    listHeldAddresses(readInventory(networkDirectoryOf(config)))
  );
  const leaked = held.filter(({ holder }) => holder.ifname !== undefined && !known.has(formatHolder(holder)));
  return leaked.map(({ address, holder: { containerId, ifname } }) =>
    warning(
      `address ${address} is reserved for "${ifname}" of container "${containerId}", which is not attached`,
      detachCommand(network.name, containerId, ifname!),
    )
  );
}

function detachCommand(network: string, containerId: string, ifname: string): string {
  return shellCommand(["cni", "run", "del", network, "--container-id", containerId, "--ifname", ifname]);
}
