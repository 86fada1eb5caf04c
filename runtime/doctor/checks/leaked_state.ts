import { formatHolder, listHeldAddresses, readInventory } from "../../../plugins/host_local/inventory.ts";
import { parseAlias } from "../../../plugins/lib/protocol/owner.ts";
import { broken, type Finding, ok, warning } from "../finding.ts";
import { shellCommand } from "../shell_command.ts";
import type { Subject } from "../subject.ts";
import type { NetworkAttachment } from "../../attachments.ts";
import { networkDirectoryOf } from "../../../plugins/host_local/network_directory.ts";
import { hostLocalConfigs } from "../../networks/users.ts";

/** Attachments without a namespace, and reservations without an attachment. */
export function checkLeakedState(subject: Subject): Finding[] {
  const problems = [
    ...subject.attachments.flatMap((attachment) => checkAttachment(subject, attachment)),
    ...checkReservations(subject),
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
