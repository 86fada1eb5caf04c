import * as link from "../../../ffi/route/link.ts";
import { reattach } from "../reattach.ts";
import { abbreviate, broken, type Finding, ok, warning } from "../finding.ts";
import { shellCommand } from "../../../spec/shell_command.ts";
import { containerPlace, describeContainer, type ExaminedContainer, ipCommand, type Subject } from "../subject.ts";

export function checkLinks(subject: Subject): Finding[] {
  const problems = subject.containers.flatMap((each) => checkPair(subject, each));
  const others = checkHostLinks(subject);
  if (problems.length > 0 || subject.containers.length === 0) return [...problems, ...others];
  const { true: pairs = [], false: single = [] } = Object.groupBy(
    subject.containers,
    ({ hostVeth }) => hostVeth ? "true" : "false",
  );
  return [
    ...pairs.length > 0 ? [ok(`links of ${abbreviate(pairs.map(describeContainer))} are up on both ends`)] : [],
    ...single.length > 0 ? [ok(`links of ${abbreviate(single.map(describeContainer))} are up`)] : [],
    ...others,
  ];
}

/** A link that is down keeps its IPv4 addresses and loses its routes: often it was the uplink. */
function checkHostLinks({ host, isRouted, bridge, gatewayDevice, containers }: Subject): Finding[] {
  if (!isRouted || containers.length === 0) return [];
  return host.links.filter((device) => !link.isUp(device) && ![bridge?.name, gatewayDevice?.name].includes(device.name))
    .flatMap(({ name, index }) => {
      const found = host.addresses.find((address) => address.index === index);
      if (!found) return [];
      const what = `"${name}" of the host is down, although it has ${found.address}`;
      return [warning(what, shellCommand(["ip", "link", "set", name ?? "", "up"]))];
    });
}

function checkPair(subject: Subject, container: ExaminedContainer): Finding[] {
  const { device, attachment: { netns, ifname } } = container;
  if (!device?.name) {
    const what = `interface "${ifname}" is missing in ${containerPlace(container.attachment)}`;
    return [broken(what, reattach(container.attachment))];
  }
  const isDown = !link.isUp(device) && !subject.bridge?.leavesLinksDown;
  const down = isDown
    ? [broken(`${describeContainer(container)} is down`, ipCommand(netns, "link", "set", device.name, "up"), {
      kind: "link-up",
      netns,
      link: device.name,
    })]
    : [];
  return [...down, ...subject.bridge || device.info?.kind === "veth" ? checkHostVeth(subject, container) : []];
}

function checkHostVeth({ bridge, host }: Subject, container: ExaminedContainer): Finding[] {
  const { hostVeth, attachment } = container;
  if (!hostVeth?.name) {
    const what = `the host's end of ${describeContainer(container)} is missing`;
    return [broken(what, reattach(attachment))];
  }
  const { name } = hostVeth;
  const whose = `the host's end of ${describeContainer(container)}`;
  const problems: Finding[] = [];
  if (!link.isUp(hostVeth)) {
    const repair = { kind: "link-up", link: name } as const;
    problems.push(broken(`"${name}", ${whose}, is down`, shellCommand(["ip", "link", "set", name, "up"]), repair));
  }
  const device = bridge && host.links.find((candidate) => candidate.name === bridge.name);
  if (device && hostVeth.master !== device.index) {
    const repair = { kind: "bridge-port", link: name, bridge: bridge.name } as const;
    const what = `"${name}", ${whose}, is no port of bridge "${bridge.name}"`;
    problems.push(broken(what, shellCommand(["ip", "link", "set", name, "master", bridge.name]), repair));
  }
  return problems;
}
