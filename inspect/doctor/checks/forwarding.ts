import { familyOf, prefixLengthOf } from "../../../ffi/address.ts";
import type * as link from "../../../ffi/route/link.ts";
import { sysctlWord } from "../../../ffi/sys/sysctl.ts";
import { shellCommand } from "../../../spec/shell_command.ts";
import {
  acceptRa,
  FORWARDING,
  forwardingCommand,
  isAdvertised,
  mayHaveRouter,
} from "../../../plugins/lib/links/forwarding.ts";
import { findUnforwardedLink, isForwardingOff, PUBLIC_ADDRESS } from "../../../plugins/lib/links/reachability.ts";
import { closedSysctl } from "../closed_sysctl.ts";
import { advise, broken, type Finding, ok, warning } from "../finding.ts";
import { findOutgoingLink, type Subject } from "../subject.ts";

export function checkHostForwarding(subject: Subject): Finding[] {
  const { isRouted, masquerades, containers, host } = subject;
  // The first ADD turns it on.
  if (!isRouted && !masquerades || containers.length === 0) return [];
  // A host without IPv6 has no such parameter.
  const families = subject.families.filter((family) => host.sysctl(FORWARDING[family]) !== undefined);
  if (families.length === 0) return [];
  const problems = [
    ...families.flatMap((family) => checkFamily(subject, family)),
    ...families.includes(6) ? checkAdvertisedRoutes(subject) : [],
  ];
  if (problems.length > 0) return problems;
  return [ok(`the host forwards ${families.map((family) => `IPv${family}`).join(" and ")}`)];
}

function checkFamily(subject: Subject, family: 4 | 6): Finding[] {
  const { host, bridge, gatewayDevice, containers } = subject;
  const name = FORWARDING[family];
  const consequence = `the host forwards no IPv${family} packets`;
  if (isForwardingOff(host.sysctl, family)) {
    if (family === 4) return [closedSysctl(name, consequence)];
    const mend = forwardingCommand(host.netns, family);
    return [broken(`${sysctlWord(name)} is 0: ${consequence}`, mend, { kind: "forwarding", family })];
  }
  if (family === 6) return [];
  // Turned off for one link only.
  const uplink = findOutgoingLink(host, PUBLIC_ADDRESS[family]);
  const inner = bridge ? [gatewayDevice] : containers.map(({ hostVeth }) => hostVeth);
  return [...inner, uplink].flatMap((device: link.Link | undefined) => {
    const setting = device && findUnforwardedLink(host.sysctl, device);
    if (!device || setting === undefined) return [];
    return [closedSysctl(setting, `the host forwards no IPv4 packets that come in by "${device.name}"`)];
  });
}

/** Routes of routers that the kernel removed when the host began to forward, or does not renew. */
function checkAdvertisedRoutes({ host }: Subject): Finding[] {
  return host.links.filter(mayHaveRouter).flatMap(({ index, name = "" }) => {
    const addresses = host.addresses.filter((entry) => entry.index === index);
    if (!addresses.some(isAdvertised) || host.sysctl(acceptRa(name)) !== "1") return [];
    if (host.sysctl(`net/ipv6/conf/${name}/forwarding`) !== "1") return [];
    const hasDefault = host.routes.some(({ dst, oif }) =>
      oif === index && familyOf(dst) === 6 && prefixLengthOf(dst) === 0
    );
    const setting = sysctlWord(acceptRa(name));
    const what = `${setting} is 1, and the host forwards: "${name}" ${hasDefault ? "will lose" : "has lost"} ` +
      "the IPv6 default route of its router";
    const mend = shellCommand(["sysctl", "-w", `${setting}=2`]);
    const remedy = advise("the route comes with the router's next advertisement, within some minutes", mend);
    return [warning(what, remedy, { kind: "sysctl", name: acceptRa(name), value: "2" })];
  });
}
