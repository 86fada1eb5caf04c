/** The kernel's table of tracked flows: it is filled faster than packets would, and listed. @module */
import type { Ip } from "../ffi/address.ts";
import { parseIp } from "../ffi/address.ts";
import { dumpFlowsInPieces, type TrackedFlow } from "../ffi/conntrack/conntrack.ts";
import { attrs } from "../ffi/netlink/attrs.ts";
import { be16, be32, ipCodec, struct, u8 } from "../ffi/netlink/codec.ts";
import { message, NLM_F_CREATE, type Operation } from "../ffi/netlink/message.ts";
import { executeAll, request } from "../ffi/netlink/socket.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { AF_INET, IPPROTO_UDP } from "../ffi/sys/uapi.ts";

// linux/netfilter/nfnetlink_conntrack.h
const tuple = attrs(() => ({
  ip: [1, attrs(() => ({ source: [1, ipCodec], destination: [2, ipCodec] }))],
  protocol: [2, attrs(() => ({ number: [1, u8], sourcePort: [2, be16], destinationPort: [3, be16] }))],
}));
const flowSpec = message("flow", struct({ family: u8, version: u8, resource: be16 }), () => ({
  original: [1, tuple],
  reply: [2, tuple],
  timeout: [7, be32],
}));
const NEW: Operation<typeof flowSpec> = { name: "IPCTNL_MSG_CT_NEW", type: 1 << 8, spec: flowSpec };
const TIMEOUT_S = 600;
const FLOWS_PER_REQUEST = 6400;
const FIRST_PORT = 1024;
const PORTS = 60_000;

/** Flows of UDP from these addresses to others, outside of the node. */
export function trackFlows(netns: Netns, sources: readonly Ip[], count: number): void {
  const requests = [];
  for (let i = 0; i < count; i++) {
    const source = sources[i % sources.length]!;
    const sourcePort = FIRST_PORT + i % PORTS;
    const destination = parseIp(`198.51.${100 + Math.floor(i / PORTS)}.7`);
    const protocol = { number: IPPROTO_UDP, sourcePort, destinationPort: 53 };
    const reply = { number: IPPROTO_UDP, sourcePort: 53, destinationPort: sourcePort };
    const flow = {
      family: AF_INET,
      original: { ip: { source, destination }, protocol },
      reply: { ip: { source: destination, destination: source }, protocol: reply },
      timeout: TIMEOUT_S,
    };
    requests.push(request(NEW, flow, NLM_F_CREATE));
    if (requests.length === FLOWS_PER_REQUEST) executeAll(netns.nft, requests.splice(0));
  }
  executeAll(netns.nft, requests);
}

/** Lists those of both families. */
export function listTrackedFlows({ nft }: Netns): TrackedFlow[] {
  let flows: TrackedFlow[] = [];
  for (const _ of dumpFlowsInPieces(nft, () => void (flows = []), (flow) => void flows.push(flow)));
  return flows;
}
