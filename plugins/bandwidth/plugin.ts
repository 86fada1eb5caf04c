/**
 * The `bandwidth` plugin: limits what a container receives and sends, at the host's end of its cable.
 *
 * @module
 */
import { checkFailedError, expectEqual } from "../lib/protocol/check_failed.ts";
import { createNetns, type Netns } from "../../ffi/netns.ts";
import { NetlinkError, withRequestPurpose } from "../../ffi/netlink/error.ts";
import * as filter from "../../ffi/route/filter.ts";
import { ifb } from "../../ffi/route/link_kinds.ts";
import * as link from "../../ffi/route/link.ts";
import * as qdisc from "../../ffi/route/qdisc.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { limitWarning, tokenBucketFor } from "./token_bucket.ts";
import { type BandwidthConfig, bandwidthConfig, type Limit } from "./config.ts";
import { collectIfbs, createIfb, findIfbs, removeIfbs, removeIfbsOfAttachments } from "./ifb.ts";
import { removeLinkIfPresent } from "../lib/links/container_link.ts";
import { type AddCall, type CheckCall, plugin, requirePrevResult } from "../lib/protocol/plugin.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { Result } from "../../spec/result.ts";

export default plugin({
  name: "bandwidth",
  about: "Limits the rates at which the container receives and sends",
  config: bandwidthConfig,

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

  // What hangs on the cable's end goes with the cable.
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

  gc({ host, pluginConfig, validAttachments }) {
    collectIfbs(host, pluginConfig.name, validAttachments);
  },

  status() {
    requireKernelSupport();
  },
});

/** The host's end of the container's cable. @throws {CniError} if there is none, or if no plugin before this one named it */
function findHostVeth({ host, netns, ifname }: CheckCall<BandwidthConfig>, { interfaces = [] }: Result): link.Link {
  const containerVeth = link.get(netns.route, ifname);
  const kind = containerVeth.info?.kind;
  if (kind !== "veth") throw cannotLimitError(ifname, `it is ${kind ? `of kind "${kind}"` : "no virtual interface"}`);
  const hostVeth = link.find(host.route, containerVeth.linkIndex ?? 0);
  // The number alone might be that of any link here, if the other end is in a third namespace.
  if (hostVeth?.info?.kind !== "veth" || hostVeth.linkIndex !== containerVeth.index) {
    throw cannotLimitError(ifname, "its other end is elsewhere");
  }
  if (interfaces.some(({ name, sandbox }) => name === hostVeth.name && !sandbox)) return hostVeth;
  throw cannotLimitError(
    ifname,
    `prevResult does not name its other end "${hostVeth.name}" as an interface of the host`,
  );
}

const cannotLimitError = (ifname: string, reason: string) =>
  new CniError(Code.InvalidConfig, `Cannot limit the bandwidth of "${ifname}": ${reason}`, {
    details:
      'put "bandwidth" behind a plugin that connects the container to this host by a veth cable, such as "bridge"',
  });

function warnOfLimits({ config, ifname, log }: AddCall<BandwidthConfig>, { mtu = 0 }: link.Link): void {
  for (const direction of ["ingress", "egress"] as const) {
    const limit = config[direction];
    const warning = limit && limitWarning(limit, mtu);
    if (warning) log(`The ${direction} limit of "${ifname}" is not what it seems: ${warning}`);
  }
}

/** What the container receives leaves the host by the port. */
function limitIngress({ host, ifname, undo }: AddCall<BandwidthConfig>, { index }: link.Link, limit: Limit): void {
  const purpose = `limit what "${ifname}" receives`;
  refuseSecondLimit(purpose, () => qdisc.addTokenBucket(host.route, index, tokenBucketFor(limit)));
  undo.defer(() => void qdisc.removeRoot(host.route, index));
}

/** What the container sends comes in by the port, goes round through an ifb, and waits there. */
function limitEgress(call: AddCall<BandwidthConfig>, hostVeth: link.Link, limit: Limit): link.Link {
  const { host, owner, ifname, undo } = call;
  const purpose = `limit what "${ifname}" sends`;
  // First, because it fails if there is a limit already, whose ifb must stay.
  refuseSecondLimit(purpose, () => qdisc.addIngress(host.route, hostVeth.index));
  undo.defer(() => void qdisc.removeIngress(host.route, hostVeth.index));
  const ifbDevice = createIfb(host, owner, hostVeth.mtu ?? 0);
  undo.defer(() => void removeLinkIfPresent(host, ifbDevice.name!));
  withRequestPurpose(() => purpose, () => qdisc.addTokenBucket(host.route, ifbDevice.index, tokenBucketFor(limit)));
  filter.addRedirect(host.route, hostVeth.index, ifbDevice.index);
  return ifbDevice;
}

/** Calls what the kernel refuses if there is a limit already. */
function refuseSecondLimit(purpose: string, addLimit: () => void): void {
  try {
    withRequestPurpose(() => purpose, addLimit);
  } catch (error) {
    if (!(error instanceof NetlinkError && error.code === "EEXIST")) throw error;
    throw new CniError(Code.InvalidConfig, `Cannot ${purpose}: it is limited already`, {
      details: "by another plugin of the list, by an ADD without a DEL since, or by somebody else",
      cause: error,
    });
  }
}

function checkTokenBucket({ route }: Netns, { index, name }: link.Link, limit: Limit): void {
  const rootQdisc = qdisc.findRoot(route, index);
  expectEqual(`queueing discipline of "${name}"`, rootQdisc?.kind, "tbf");
  const actual = qdisc.tokenBucketOf(rootQdisc!);
  const expected = tokenBucketFor(limit);
  expectEqual(`rate of "${name}" in bytes per second`, actual && Number(actual.rate), Number(expected.rate));
  expectEqual(`queue of "${name}" in bytes`, actual?.limit, expected.limit);
  if (actual && qdisc.matchesBurst(actual, expected)) return;
  throw checkFailedError(`burst of "${name}" is another than ${expected.burst} bytes`);
}

function checkEgress(
  { host, ifname, owner, prevResult }: CheckCall<BandwidthConfig>,
  hostVeth: link.Link,
  limit: Limit,
): void {
  const [ifbDevice] = findIfbs(host, owner, prevResult);
  if (!ifbDevice) {
    throw checkFailedError(`the ifb that limits what "${ifname}" sends is missing on the host`);
  }
  expectEqual(`administrative state of "${ifbDevice.name}"`, link.isUp(ifbDevice) ? "up" : "down", "up");
  checkTokenBucket(host, ifbDevice, limit);
  const ingress = qdisc.findIngress(host.route, hostVeth.index);
  expectEqual(`ingress discipline of "${hostVeth.name}"`, ingress?.kind, "ingress");
  const redirectTargets = filter.listRedirects(host.route, hostVeth.index);
  expectEqual(`link that packets of "${hostVeth.name}" are redirected to`, redirectTargets[0], ifbDevice.index);
}

/** Tries everything in a namespace that nobody sees: the kernel loads its parts when they are asked for, and tells of none before. */
function requireKernelSupport(): void {
  try {
    using scratch: Netns = createNetns();
    link.add(scratch.route, { name: "bwp", info: ifb({}) });
    const { index } = link.get(scratch.route, "bwp");
    qdisc.addTokenBucket(scratch.route, index, { rate: 1n, burst: 1, limit: 1 });
    qdisc.addIngress(scratch.route, index);
    filter.addRedirect(scratch.route, index, index);
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    throw new CniError(Code.NotAvailable, `Cannot limit bandwidth: ${error.message}`, {
      details:
        "needed are CAP_SYS_ADMIN, CAP_NET_ADMIN and the kernel's ifb, sch_tbf, sch_ingress, cls_u32 and act_mirred",
      cause: error,
    });
  }
}
