import { parseAlias } from "../../../plugins/lib/model/owner.ts";
import { abbreviate, advise, broken, type Finding, MAX_LISTED, ok, type Remedy, warning } from "../finding.ts";
import { shellCommand } from "../../../spec/shell_command.ts";
import { reattach } from "../reattach.ts";
import { openReservations } from "../reservations.ts";
import type { Subject } from "../subject.ts";
import { ipOf } from "../../../ffi/address.ts";
import { describeContainerId, type NamedAttachment } from "../../../containers/engine_names.ts";
import { holderKey } from "../../../plugins/lib/model/reservations.ts";
import { reservationsOf } from "../../../networks/reservations.ts";

/** Attachments, their namespaces, their reservations and their links: each without another. */
export function checkLeakedState(subject: Subject): Finding[] {
  const problems = [
    ...checkAttachments(subject),
    ...checkReservations(subject),
    ...checkReserved(subject),
    ...checkUnknownLinks(subject),
  ];
  // Of one namespace, little is asked.
  if (problems.length > 0 || subject.netnsPath !== undefined) return problems;
  return [ok("no attachment and no reservation was left behind")];
}

interface Remainder {
  readonly what: string;
  /** A list names it in this way. */
  readonly short: string;
  readonly mend: string;
}

function checkAttachments(subject: Subject): Finding[] {
  const { network, netnsPath, attachments } = subject;
  const { gone = [], unfinished = [] } = Object.groupBy(attachments, ({ state }) => state);
  const whose = ({ containerId, name, ifname }: NamedAttachment) =>
    `"${ifname}" of container "${describeContainerId(containerId, name)}"`;
  const mend = ({ containerId, ifname }: NamedAttachment) => detachCommand(network.name, containerId, ifname);
  const remainders = gone.map((attachment) => ({
    what: `${whose(attachment)} is attached, but ${attachment.reason}`,
    short: whose(attachment),
    mend: mend(attachment),
  }));
  return [
    ...netnsPath === undefined
      ? describeRemainders(subject, remainders, "attachments are left of containers that are gone")
      : remainders.map(({ what, mend }) => broken(what, mend)),
    ...unfinished.map((attachment) => {
      const at = attachment.netns ? ` (${attachment.netns})` : "";
      const remedy = advise("if that ADD runs no more, detach what it left", mend(attachment));
      return warning(`the ADD of ${whose(attachment)} has not ended${at}`, remedy);
    }),
  ];
}

/** After a reboot there may be thousands. */
function describeRemainders(subject: Subject, all: readonly Remainder[], many: string): Finding[] {
  if (all.length <= MAX_LISTED) return all.map(({ what, mend }) => warning(what, mend));
  return [
    warning(`${all.length} ${many}: ${abbreviate(all.map(({ short }) => short))}`, detachAllCommand(subject, all)),
  ];
}

/** Without options, `gc` prints the command that keeps what is attached, if that has so few names. */
const MAX_KEPT = 10;

function detachAllCommand({ network, attachments }: Subject, [first]: readonly Remainder[]): Remedy {
  const kept = attachments.filter(({ state }) => state !== "gone").length;
  if (kept > MAX_KEPT) return advise("detach each by its name, as the first", first!.mend);
  return advise("this prints the command that detaches what is gone", shellCommand(["cni", "run", "gc", network.name]));
}

/** An address without a reservation is given to the next container too. */
function checkReserved({ network, containers }: Subject): Finding[] {
  const problemOf = openReservations(network);
  return containers.flatMap(({ attachment, owner, ips }) =>
    ips.flatMap(({ address }) => {
      const problem = problemOf(owner, ipOf(address));
      return problem === undefined ? [] : [broken(problem, reattach(attachment))];
    })
  );
}

/** Links of the network that no attachment of the cache has. Its file was lost, or the cache is another one. */
function checkUnknownLinks(subject: Subject): Finding[] {
  const { network, host, netnsPath, attachments, names: engineNames, runtime: { cacheDirectory } } = subject;
  if (netnsPath !== undefined) return [];
  const known = new Set(attachments.map(holderKey));
  const unknown = host.links.flatMap(({ alias }) => parseAlias(alias) ?? []).filter((owner) =>
    owner.network === network.name && !known.has(holderKey(owner))
  );
  const [first] = unknown;
  if (!first) return [];
  const names = abbreviate(
    unknown.map(({ containerId, ifname }) =>
      `"${ifname}" of container "${describeContainerId(containerId, engineNames?.findById(containerId))}"`
    ),
  );
  const mend = advise(
    "if an engine has another cache, name it with --cache-dir; if it is gone, detach it",
    detachCommand(network.name, first.containerId, first.ifname),
  );
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
  const known = new Set([...subject.attachments, ...owners].map(holderKey));
  const held = reservationsOf(network).flatMap((reservations) => [...reservations.holders()]);
  const leaked = held.flatMap(([address, holder]) =>
    holder?.ifname !== undefined && !known.has(holderKey(holder)) ? [{ address, ...holder, ifname: holder.ifname }] : []
  );
  const remainders = leaked.map(({ address, containerId, ifname }) => {
    const whose = `"${ifname}" of container "${
      describeContainerId(containerId, subject.names?.findById(containerId))
    }"`;
    return {
      what: `address ${address} is reserved for ${whose}, which is not attached`,
      short: `${address} (${whose})`,
      mend: detachCommand(network.name, containerId, ifname),
    };
  });
  return describeRemainders(subject, remainders, "addresses are reserved for what is not attached");
}

function detachCommand(network: string, containerId: string, ifname: string): string {
  return shellCommand(["cni", "run", "del", network, "--container-id", containerId, "--ifname", ifname]);
}
