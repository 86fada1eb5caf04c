import type * as link from "../../../ffi/route/link.ts";
import { FORWARDING, PUBLIC_ADDRESS } from "../../../plugins/lib/links/reachability.ts";
import { closedSysctl } from "../closed_sysctl.ts";
import { type Finding, ok } from "../finding.ts";
import { findOutgoingLink, type Subject } from "../subject.ts";

/** Whether the kernel forwards packets between the network and other links. */
export function checkHostForwarding(subject: Subject): Finding[] {
  const { isRouted, masquerades, containers, host } = subject;
  // The first ADD turns it on.
  if (!isRouted && !masquerades || containers.length === 0) return [];
  // A host without IPv6 has no such parameter.
  const families = subject.families.filter((family) => host.sysctl(FORWARDING[family]) !== undefined);
  if (families.length === 0) return [];
  const findings = families.map((family) => checkFamily(subject, family));
  const problems = findings.flat();
  if (problems.length > 0) return problems;
  return [ok(`the host forwards ${families.map((family) => `IPv${family}`).join(" and ")}`)];
}

function checkFamily(subject: Subject, family: 4 | 6): Finding[] {
  const { host, bridge, gatewayDevice, containers } = subject;
  const name = FORWARDING[family];
  if (host.sysctl(name) === "0") return [closedSysctl(name, `the host forwards no IPv${family} packets`)];
  if (family === 6) return [];
  // Turned off for one link only.
  const uplink = findOutgoingLink(host, PUBLIC_ADDRESS[family]);
  const inner = bridge ? [gatewayDevice] : containers.map(({ hostVeth }) => hostVeth);
  return [...inner, uplink].flatMap((device: link.Link | undefined) => {
    const setting = `net/ipv4/conf/${device?.name}/forwarding`;
    if (!device || host.sysctl(setting) !== "0") return [];
    return [closedSysctl(setting, `the host forwards no IPv4 packets that come in by "${device.name}"`)];
  });
}
