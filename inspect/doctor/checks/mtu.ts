import { findModel } from "../../../plugins/registry.ts";
import { PUBLIC_ADDRESS } from "../../../plugins/lib/links/reachability.ts";
import { broken, careful, type Finding, ok, warning } from "../finding.ts";
import { reattach } from "../reattach.ts";
import { shellCommand } from "../../../spec/shell_command.ts";
import {
  describeContainer,
  type ExaminedContainer,
  findOutgoingLink,
  ipCommand,
  isUplink,
  type Subject,
} from "../subject.ts";

/** The MTU along the way: container, host's end, bridge, uplink. */
export function checkMtu(subject: Subject): Finding[] {
  const { containers } = subject;
  const pairs = containers.flatMap((each) => checkPairMtu(subject, each));
  const problems = [...oneForEachMend(pairs), ...checkUplinkMtu(subject)];
  // Where no link is behind the container's, there is nothing to compare.
  const mtus = new Set(containers.flatMap(({ device, hostVeth }) => hostVeth?.mtu && device?.mtu || []));
  if (problems.length > 0 || mtus.size === 0) return problems;
  return [ok(`MTU ${[...mtus].join(", ")} fits all links on the way`)];
}

/** One bridge concerns many containers. */
function oneForEachMend(findings: readonly Finding[]): Finding[] {
  return [...Map.groupBy(findings, ({ mend }) => mend).values()].map(([first, ...others]) => ({
    ...first!,
    what: others.length === 0 ? first!.what : `${first!.what} (and so for ${others.length} more)`,
  }));
}

/** A veth pair silently loses packets that are larger than the MTU of the receiving end. */
function checkPairMtu(subject: Subject, container: ExaminedContainer): Finding[] {
  const { host, bridge, network } = subject;
  const { device, hostVeth, attachment: { netns } } = container;
  if (!device?.name || !device.mtu || !hostVeth?.mtu) return [];
  const bridgeDevice = bridge && host.links.find(({ name }) => name === bridge.name);
  const smaller = [hostVeth, bridgeDevice].find((other) => other?.mtu !== undefined && other.mtu < device.mtu!);
  const other = smaller ?? (hostVeth.mtu > device.mtu ? hostVeth : undefined);
  if (!other?.name || !other.mtu) return [];
  const what = `MTU mismatch: ${describeContainer(container)} has ${device.mtu}, "${other.name}" on the host has ` +
    `${other.mtu}, so larger packets are lost`;
  // A plugin may have lowered it: TCP tells the peer, UDP does not.
  if (!smaller && network.plugins.some(({ type }) => findModel(type)?.changes === "mtu")) {
    return [warning(what, shellCommand(["ip", "link", "set", other.name, "mtu", `${device.mtu}`]))];
  }
  // If both ends agree, the bridge is what differs.
  const mtu = bridge?.mtu || (hostVeth.mtu === device.mtu ? device.mtu : other.mtu);
  if (device.mtu === mtu) {
    // A bridge may be the uplink, whose network may lose larger packets.
    const command = careful(shellCommand(["ip", "link", "set", other.name, "mtu", `${mtu}`]), isUplink(subject, other));
    return [broken(what, command, { kind: "mtu", link: other.name, mtu })];
  }
  const mend = ipCommand(netns, "link", "set", device.name, "mtu", `${mtu}`);
  return [broken(what, mend, { kind: "mtu", netns, link: device.name, mtu })];
}

function checkUplinkMtu({ host, network, isRouted, masquerades, families, containers }: Subject): Finding[] {
  if (!isRouted && !masquerades) return [];
  const uplinks = new Set(families.flatMap((family) => findOutgoingLink(host, PUBLIC_ADDRESS[family]) ?? []));
  return [...uplinks].flatMap(({ name, mtu = 0 }) => {
    const larger = containers.find(({ device }) => (device?.mtu ?? 0) > mtu);
    if (!larger) return [];
    const what = `${describeContainer(larger)} has MTU ${larger.device!.mtu}, the uplink "${name}" only ${mtu}: ` +
      `senders outside must get ICMP messages`;
    const file = network.source ?? "the configuration";
    return [
      warning(what, reattach(larger.attachment, `set "mtu": ${mtu} in ${file}`)),
    ];
  });
}
