/** Which of Kubernetes' own tests run, and which cannot. @module */

/** Regular expressions for names of specs. */
export interface SpecPart {
  readonly focus: string;
  readonly skip?: string;
}

/** One for each way of a packet: pod to pod, node to pod, by Services, ports of nodes and names, and back to oneself. */
const WAYS = [
  "DNS should provide DNS for (the cluster|services) \\[Conformance\\]",
  "HostPort validates that there is no conflict",
  "NoSNAT Should be able to send traffic between Pods without SNAT",
  "Granular Checks: Pods should function for (intra-pod|node-pod) communication: (http|udp)",
  "Proxy version v1 should proxy through a service and a pod",
  "Services should allow pods to hairpin back to themselves through services",
  "Services should be able to change the type from ExternalName to NodePort",
  "Services should be able to create a functioning NodePort service",
  "Services should be able to switch session affinity for NodePort service",
  "Services should preserve source pod IP for traffic thru service cluster IP",
  "Services should serve a basic endpoint from pods",
  "Services should serve endpoints on same port and different protocols",
  "Services should serve multiport endpoints from pods",
];

/** One of each kind of policy. */
const POLICIES = [
  "NetworkPolicy between server and client should deny egress from pods based on PodSelector",
  "NetworkPolicy between server and client should enforce except clause while egress access",
  "NetworkPolicy between server and client should enforce policy based on Ports",
  "NetworkPolicy between server and client should enforce updated policy",
];

const POLICY_SAMPLE = `Netpol (${POLICIES.join("|")})`;

/** By the words that choose them. */
export const SPEC_PARTS: Readonly<Record<string, SpecPart>> = {
  sample: {
    focus: `\\[sig-network\\] (${
      [...WAYS.map((pattern) => `Networking ${pattern}|${pattern}`), POLICY_SAMPLE].join("|")
    })`,
  },
  "policy-sample": { focus: `\\[sig-network\\] ${POLICY_SAMPLE}` },
  conformance: { focus: "\\[sig-network\\].*\\[Conformance\\]" },
  network: { focus: "\\[sig-network\\]", skip: "\\[Conformance\\]|Netpol" },
  policy: { focus: "\\[sig-network\\] Netpol" },
};

/** What this kernel or these nodes cannot do, whatever the network does; or what says nothing of a network. */
export const IMPOSSIBLE_SPECS: readonly { readonly pattern: string; readonly reason: string }[] = [
  { pattern: "\\[Feature:LoadBalancer\\]", reason: "needs the load balancer of a cloud" },
  {
    pattern: "\\[Feature:SCTPConnectivity\\]",
    reason: "needs SCTP in the kernel; plugins/network_policy/sctp_vm_test.ts has policies for it",
  },
  { pattern: "\\[Feature:Networking-(IPv4|IPv6|DNS)\\]|\\[Provider:GCE\\]", reason: "needs the internet" },
  { pattern: "\\[Feature:OffByDefault\\]", reason: "needs a feature that is off" },
  { pattern: "\\[Disruptive\\]", reason: "needs nodes with systemd and ssh" },
  { pattern: "should be rejected for evicted pods", reason: "needs nodes that evict, and these share a machine" },
  { pattern: "invalid conntrack state bug", reason: "needs an image with a program of its own" },
  { pattern: "IPerf2", reason: "needs an image with iperf" },
  { pattern: "\\[Feature:KubeProxyNFAcct\\]", reason: "needs nfacct in the kernel, and kube-proxy with iptables" },
  {
    pattern: "DNS configMap nameserver|\\[Feature:PerformanceDNS\\]",
    reason: "tests the name server, and takes minutes",
  },
];
