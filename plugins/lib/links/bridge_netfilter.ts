/**
 * Whether packets between ports of a bridge pass the rules for IP packets: a parameter of the module `br_netfilter`.
 *
 * kube-proxy translates a pod's call of a Service. If the endpoint is on the same bridge, the answer takes no other way
 * than the bridge, so only this parameter leads it past the rule that translates it back.
 */
export function bridgeNetfilterSysctl(family: 4 | 6): string {
  return `net/bridge/bridge-nf-call-ip${family === 4 ? "" : "6"}tables`;
}
