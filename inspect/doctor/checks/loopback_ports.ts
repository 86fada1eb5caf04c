import { describeHostPort, familiesOf, hostAddressOf, type PortMapping } from "../../../spec/port_mapping.ts";
import { reachesLoopback } from "../../../spec/port_mapping.ts";
import { closedSysctl } from "../closed_sysctl.ts";
import { broken, type Finding } from "../finding.ts";
import { reattach } from "../reattach.ts";
import { hasPublishedElements } from "./ports.ts";
import {
  addressesOfFamily,
  describeContainer,
  type ExaminedContainer,
  findOutgoingLink,
  programOfPublisher,
  type Subject,
} from "../subject.ts";

/**
 * Whether calls from 127.0.0.1 can reach published ports.
 *
 * Our plugin gives them another source, if `snat` allows. The reference plugin sets `route_localnet` for that.
 */
export function checkLoopbackPorts(subject: Subject): Finding[] {
  const program = programOfPublisher(subject);
  return subject.containers.flatMap((container) => {
    const mappings = (container.publishedPorts?.mappings ?? []).filter((mapping) =>
      familiesOf(mapping).includes(4) && reachesLoopback(mapping)
    );
    if (mappings.length === 0 || addressesOfFamily(container, 4).length === 0) return [];
    // Another build of this program puts the same elements.
    const isOwn = program === undefined || hasPublishedElements(subject, container);
    if (isOwn) return checkSource(subject, container, mappings);
    return container.publishedPorts!.masqueradesCallers ? checkRouteLocalnet(subject, container, program) : [];
  });
}

/** For all addresses, `"snat": false` may be wanted. */
function checkSource({ network }: Subject, container: ExaminedContainer, mappings: readonly PortMapping[]): Finding[] {
  if (container.publishedPorts!.masqueradesCallers) return [];
  const file = network.source ?? "the configuration";
  return mappings.filter((mapping) => hostAddressOf(mapping) !== undefined).map((mapping) => {
    const what = `${describeHostPort(mapping)} of ${describeContainer(container)} gets no answers: "snat" is false, ` +
      "so its calls keep a source that no container answers";
    return broken(what, reattach(container.attachment, `remove "snat": false from ${file}`));
  });
}

/** The kernel uses the larger of both values. */
function checkRouteLocalnet({ host }: Subject, container: ExaminedContainer, program: string): Finding[] {
  const [address] = addressesOfFamily(container, 4);
  const name = findOutgoingLink(host, address!)?.name;
  const settings = ["all", name].map((key) => `net/ipv4/conf/${key}/route_localnet`);
  if (name === undefined || settings.some((setting) => host.sysctl(setting) !== "0")) return [];
  const consequence = `${program} needs it for calls of 127.0.0.1 to ports of ${describeContainer(container)}`;
  return [closedSysctl(settings[1]!, consequence)];
}
