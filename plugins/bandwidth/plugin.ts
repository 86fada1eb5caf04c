import * as link from "../../ffi/route/link.ts";
import { type BandwidthConfig, bandwidthConfig } from "./config.ts";
import { gcIfbs, removeIfbs, removeIfbsOfAttachments } from "./ifb.ts";
import { type CheckCall, plugin, requirePrevResult } from "../lib/protocol/plugin.ts";
import type { Result } from "../../spec/result.ts";
import {
  cannotLimitError,
  checkEgress,
  checkTokenBucket,
  limitEgress,
  limitIngress,
  requireKernelSupport,
  warnOfLimits,
} from "./limits.ts";

export default plugin({
  name: "bandwidth",
  about: "Limits the rates at which the container receives and sends",
  config: bandwidthConfig,

  needsPrevResult: () => true,

  add(call) {
    const { ingress, egress } = call.config;
    const result = requirePrevResult(call, "bandwidth");
    if (!ingress && !egress) return result;
    const hostVeth = findHostVeth(call, result);
    warnOfLimits(call, hostVeth);
    if (ingress) limitIngress(call, hostVeth, ingress);
    if (!egress) return result;
    const { name = "", mac } = limitEgress(call, hostVeth, egress);
    return { ...result, interfaces: [...result.interfaces ?? [], { name, ...mac ? { mac } : {} }] };
  },

  // Limits on the veth end with it.
  del({ host, owner, prevResult }) {
    removeIfbs(host, owner, prevResult);
  },

  delBatch(calls) {
    removeIfbsOfAttachments(calls[0].host, calls);
    return [];
  },

  check(call) {
    const { ingress, egress } = call.config;
    const result = requirePrevResult(call, "bandwidth");
    if (!ingress && !egress) return;
    const hostVeth = findHostVeth(call, result);
    if (ingress) checkTokenBucket(call.host, hostVeth, ingress);
    if (egress) checkEgress(call, hostVeth, egress);
  },

  gc({ host, pluginConfig, validAttachments, log }) {
    gcIfbs(host, pluginConfig.name, validAttachments, log);
  },

  status() {
    requireKernelSupport();
  },
});

function findHostVeth({ host, netns, ifname }: CheckCall<BandwidthConfig>, { interfaces = [] }: Result): link.Link {
  const containerVeth = link.get(netns.route, ifname);
  const kind = containerVeth.info?.kind;
  if (kind !== "veth") throw cannotLimitError(ifname, `it is ${kind ? `of kind "${kind}"` : "no virtual interface"}`);
  const hostVeth = link.find(host.route, containerVeth.linkIndex ?? 0);
  // With the other end in a third namespace, any link here may have its index.
  if (hostVeth?.info?.kind !== "veth" || hostVeth.linkIndex !== containerVeth.index) {
    throw cannotLimitError(ifname, "its other end is in another namespace");
  }
  if (interfaces.some(({ name, sandbox }) => name === hostVeth.name && !sandbox)) return hostVeth;
  throw cannotLimitError(
    ifname,
    `prevResult does not name its other end "${hostVeth.name}" as an interface of the host`,
  );
}
