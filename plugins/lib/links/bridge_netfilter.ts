/**
 * Whether packets between ports of a bridge pass the rules for IP packets: a parameter of the module `br_netfilter`.
 *
 * kube-proxy translates a pod's call of a Service. An endpoint on the same bridge answers over the bridge. Only this
 * parameter leads the answer past the rule that translates it back.
 */
export function bridgeNetfilterSysctl(family: 4 | 6): string {
  return `net/bridge/bridge-nf-call-ip${family === 4 ? "" : "6"}tables`;
}
