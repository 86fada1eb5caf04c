import {
  type Cidr,
  containsIp,
  familyOf,
  type Ip,
  ipOf,
  networksOverlap,
  prefixLengthOf,
} from "../../../ffi/address.ts";
import { programsHere } from "../../../ffi/netns/programs.ts";
import { sysctlWord } from "../../../ffi/sys/sysctl.ts";
import { holderKey } from "../../../plugins/lib/model/reservations.ts";
import { bridgeNetfilterSysctl } from "../../../plugins/lib/links/bridge_netfilter.ts";
import { shellCommand } from "../../../spec/shell_command.ts";
import { reservationsOf } from "../../../networks/reservations.ts";
import { closedSysctl } from "../closed_sysctl.ts";
import { abbreviate, advise, broken, type Finding, ok, warning } from "../finding.ts";
import { type KubeProxyRules, readKubeProxyRules, type ServiceEndpoint } from "../kube_proxy_rules.ts";
import { addressesOfOthers } from "../other_networks.ts";
import type { Subject } from "../subject.ts";

/** What keeps pods of the network from Services, on a node with kube-proxy's rules. */
export function checkKubeProxy(subject: Subject): Finding[] {
  const all = readKubeProxyRules(subject.host.netns.nft);
  if (!isPodNetwork(subject, all)) return [];
  const problems = [
    ...checkRunning(),
    ...checkStaleEndpoints(subject, all.flatMap(({ endpoints }) => endpoints)),
    ...checkRefused(all.flatMap(({ refused }) => refused)),
    ...all.flatMap((rules) => checkClusterCidr(subject, rules)),
    ...all.flatMap((rules) => checkBridgeNetfilter(subject, rules)),
  ];
  return problems.length > 0 ? problems : [ok("kube-proxy's rules lead to pods that are there")];
}

/** A node may have networks of other engines, too. */
function isPodNetwork({ attachments, subnets }: Subject, all: readonly KubeProxyRules[]): boolean {
  if (all.length === 0) return false;
  return attachments.some(({ args }) => args.some(([key]) => key === "K8S_POD_NAMESPACE")) ||
    all.some(({ endpoints }) => endpoints.some(({ address }) => subnets.some((subnet) => containsIp(subnet, address))));
}

/** It writes all rules when it starts. */
const RESTART = "kubectl -n kube-system rollout restart daemonset/kube-proxy";

/** Distributions without a kubelet of its own have no kube-proxy of its own. */
function checkRunning(): Finding[] {
  const programs = programsHere();
  if (!programs.has("kubelet") || programs.has("kube-proxy")) return [];
  const what = "kube-proxy does not run on this node: its rules stay as they are when Services and pods change";
  return [warning(what, advise("start it as it was started, here as a DaemonSet", RESTART))];
}

function checkStaleEndpoints(subject: Subject, endpoints: readonly ServiceEndpoint[]): Finding[] {
  const inSubnets = endpoints.filter(({ address }) => subject.subnets.some((subnet) => containsIp(subnet, address)));
  if (inSubnets.length === 0) return [];
  const known = podAddresses(subject);
  const unknown = inSubnets.filter(({ address, isCalled }) => !known.has(address) && isCalled());
  if (unknown.length === 0) return [];
  const others = new Set(addressesOfOthers(subject));
  const stale = unknown.filter(({ address }) => !others.has(address));
  if (stale.length === 0) return [];
  const texts = new Set(stale.map(({ service, address }) => `those of "${service}" to ${address}`));
  const what = `kube-proxy's rules are stale: they send calls to pods that are gone, ${abbreviate([...texts])}`;
  return [broken(what, advise("start kube-proxy again, here as a DaemonSet: it writes its rules anew", RESTART))];
}

/** Addresses of attached containers, of ADDs that run, and of the host. */
function podAddresses({ network, host, attachments, neighbours }: Subject): ReadonlySet<Ip> {
  const gone = new Set(attachments.filter(({ state }) => state === "gone").map(holderKey));
  const reserved = reservationsOf(network).flatMap((reservations) => [...reservations.holders()]);
  return new Set([
    ...neighbours.flatMap(({ ips }) => ips.map(({ address }) => ipOf(address))),
    ...attachments.filter(({ state }) => state !== "gone")
      .flatMap(({ result }) => (result?.ips ?? []).map(({ address }) => ipOf(address))),
    ...reserved.filter(([, holder]) => holder === undefined || !gone.has(holderKey(holder))).map(([ip]) => ip),
    ...host.addresses.map(({ address }) => ipOf(address)),
  ]);
}

function checkRefused(services: readonly string[]): Finding[] {
  const [first] = services;
  if (first === undefined) return [];
  const [, namespace, name] = /^([^/]+)\/([^:]+)/.exec(first) ?? [];
  const what = `kube-proxy refuses calls of Services that have no endpoints: ${abbreviate([...new Set(services)])}`;
  const command = name === undefined
    ? ["kubectl", "get", "endpointslices", "--all-namespaces"]
    : ["kubectl", "-n", namespace!, "get", "endpointslices", "-l", `kubernetes.io/service-name=${name}`];
  return [warning(what, advise("if a Service should have pods, see which of them are ready", shellCommand(command)))];
}

function checkClusterCidr({ subnets }: Subject, { family, clusterCidr }: KubeProxyRules): Finding[] {
  if (clusterCidr === undefined) return [];
  const isInside = (subnet: Cidr) =>
    networksOverlap(clusterCidr, subnet) && prefixLengthOf(clusterCidr) <= prefixLengthOf(subnet);
  const outside = subnets.filter((subnet) => familyOf(subnet) === family && !isInside(subnet));
  if (outside.length === 0) return [];
  const what = `kube-proxy's --cluster-cidr ${clusterCidr} does not hold the pods' ${outside.join(", ")}: ` +
    "Services see their calls come from the node";
  const advice = 'correct "clusterCIDR" in its configuration, then start it again';
  return [warning(what, advise(advice, `kubectl -n kube-system edit configmap kube-proxy && ${RESTART}`))];
}

function checkBridgeNetfilter({ bridge, families, host }: Subject, { family }: KubeProxyRules): Finding[] {
  const name = bridgeNetfilterSysctl(family);
  const value = host.sysctl(name);
  // kube-proxy has rules of both families also where pods have one.
  if (!bridge || !families.includes(family) || value === "1") return [];
  const consequence = "a pod does not reach a Service whose endpoint is on its own node";
  if (value !== undefined) return [closedSysctl(name, consequence)];
  const word = sysctlWord(name);
  const mend = `modprobe br_netfilter && ${shellCommand(["sysctl", "-w", `${word}=1`])}`;
  const advice = "load the module, also at boot: write br_netfilter into /etc/modules-load.d/br_netfilter.conf";
  return [broken(`${word} is missing: ${consequence}`, advise(advice, mend))];
}
