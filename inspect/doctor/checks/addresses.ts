import { type Cidr, containsIp, familyOf, type Ip, ipOf } from "../../../ffi/address.ts";
import * as link from "../../../ffi/route/link.ts";
import { IFA_F_DADFAILED } from "../../../ffi/route/uapi.ts";
import { interfaceDifferences } from "../../../plugins/lib/links/interface_differences.ts";
import { parseAlias } from "../../../plugins/lib/model/owner.ts";
import { abbreviate, advise, broken, careful, type Finding, ok } from "../finding.ts";
import { reattach } from "../reattach.ts";
import { openReservations } from "../reservations.ts";
import { shellCommand } from "../../../spec/shell_command.ts";
import {
  containerPlace,
  describeContainer,
  type ExaminedContainer,
  interfaceState,
  ipCommand,
  type Subject,
} from "../subject.ts";

/** Addresses of containers: present, and on one link only. */
export function checkAddresses(subject: Subject): Finding[] {
  const { containers } = subject;
  const problems = [
    ...containers.flatMap((each) => checkContainerAddresses(subject, each)),
    ...checkForeignAddresses(subject),
    ...containers.flatMap((each) => checkDuplicates(subject, each)),
  ];
  if (problems.length > 0) return problems;
  const addresses = containers.flatMap(({ device, ips }) =>
    ips.map(({ address }) => address).filter((address) => canHaveAddress(device, address))
  );
  return addresses.length > 0 ? [ok(`addresses ${abbreviate(addresses)} are there, each once`)] : [];
}

/** A link that is down has no IPv6 address. */
function canHaveAddress(device: link.Link | undefined, address: Cidr | Ip): device is link.Link {
  return device !== undefined && (link.isUp(device) || familyOf(address) === 4);
}

function checkContainerAddresses(subject: Subject, container: ExaminedContainer): Finding[] {
  const { device, state, ips, attachment: { result } } = container;
  if (!device) return [];
  const differences = [...interfaceDifferences(interfaceState(state), device, result!, ips)];
  return ips.flatMap(({ address }) => {
    if (!canHaveAddress(device, address)) return [];
    if (differences.some(({ kind, missing }) => kind === "address" && missing === address)) {
      return [describeMissing(subject, container, device.name!, address)];
    }
    const isRefused = state.addresses.some((found) => found.address === address && found.flags & IFA_F_DADFAILED);
    if (!isRefused) return [];
    const what = `duplicate address: another machine on the wire has ${address} of ${describeContainer(container)}`;
    return [broken(what, advise("find the other machine, or reserve its address in the configuration"))];
  });
}

/** It is added again only while nobody else has it, or may get it. */
function describeMissing(
  { network, neighbours }: Subject,
  container: ExaminedContainer,
  link: string,
  address: Cidr,
): Finding {
  const { owner, attachment, attachment: { netns } } = container;
  const what = `address ${address} is missing on ${describeContainer(container)}`;
  const isTaken = findOtherHolder(neighbours, container, ipOf(address)) !== undefined ||
    openReservations(network)(owner, ipOf(address)) !== undefined;
  if (isTaken) return broken(what, reattach(attachment));
  const mend = ipCommand(netns, "addr", "add", address, "dev", link);
  return broken(what, mend, { kind: "address", netns, link, address });
}

function findOtherHolder(
  neighbours: Subject["neighbours"],
  { attachment: { netns } }: ExaminedContainer,
  ip: Ip,
): ExaminedContainer | undefined {
  return neighbours.find(({ attachment, state }) =>
    attachment.netns !== netns && state.addresses.some((found) => ipOf(found.address) === ip)
  );
}

/** A bridge has one IPv4 network: an ADD refuses another one's address, unless `forceAddress` replaces it. */
function checkForeignAddresses(subject: Subject): Finding[] {
  const { bridge, gatewayDevice, isRouted, host, network } = subject;
  const subnets = subject.subnets.filter((subnet) => familyOf(subnet) === 4);
  if (!bridge || !gatewayDevice || !isRouted || bridge.replacesAddresses || subnets.length === 0) return [];
  const users = host.links.filter(({ master }) => master === gatewayDevice.index)
    .flatMap(({ alias }) => parseAlias(alias) ?? []);
  // A former gateway that nobody uses is replaced.
  const isOnlyUser = users.every((user) => user.network === network.name);
  return host.addresses.filter((entry) =>
    entry.index === gatewayDevice.index && familyOf(entry.address) === 4 &&
    !(isOnlyUser && bridge.isFormerGateway(entry)) &&
    !subnets.some((subnet) => containsIp(subnet, ipOf(entry.address)))
  ).map(({ address }) =>
    broken(
      `bridge "${gatewayDevice.name}" has ${address} already, which is in no subnet of this network (${
        subnets.join(", ")
      })`,
      careful(advise(
        'give the network a "bridge" of its own, or remove the address',
        shellCommand(["ip", "addr", "del", address, "dev", gatewayDevice.name!]),
      )),
    )
  );
}

/** Compares with the other containers of the network. The wire is asked by a try. */
function checkDuplicates({ neighbours, bridge }: Subject, container: ExaminedContainer): Finding[] {
  if (!bridge) return [];
  return container.ips.flatMap(({ address }) => {
    const ip = ipOf(address);
    const holder = findOtherHolder(neighbours, container, ip);
    if (!holder) return [];
    const { state, attachment } = holder;
    const found = state.addresses.find((candidate) => ipOf(candidate.address) === ip)!;
    const name = state.links.find(({ index }) => index === found.index)?.name;
    const what = `duplicate address: ${ip} of ${describeContainer(container)} is also on "${name}" of ` +
      containerPlace(attachment);
    return [broken(what, ipCommand(attachment.netns, "addr", "del", found.address, "dev", name!))];
  });
}
