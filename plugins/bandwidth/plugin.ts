/**
 * The `bandwidth` plugin: limits what a container receives and sends, at the host's end of its cable.
 *
 * @module
 */
import { createNetns, type Netns } from "../../ffi/netns.ts";
import { NetlinkError, purposed } from "../../ffi/netlink/error.ts";
import * as filter from "../../ffi/route/filter.ts";
import { ifb } from "../../ffi/route/link_kinds.ts";
import * as link from "../../ffi/route/link.ts";
import * as qdisc from "../../ffi/route/qdisc.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { bucketOf, doubtOf } from "./token_bucket.ts";
import { type BandwidthConfig, bandwidthConfig, type Limit } from "./config.ts";
import { collectIfbs, createIfb, findIfbs, removeIfbs, removeIfbsOfMany } from "./ifb.ts";
import { expectEqual, removeIfPresent } from "../lib/links/interface.ts";
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
    const port = findPort(call, result);
    warn(call, port);
    if (ingress) limitReceiving(call, port, ingress);
    if (!egress) return result;
    const { name = "", mac } = limitSending(call, port, egress);
    return { ...result, interfaces: [...result.interfaces ?? [], { name, ...mac ? { mac } : {} }] };
  },

  // What hangs on the cable's end goes with the cable.
  del({ host, owner, prevResult }) {
    removeIfbs(host, owner, prevResult);
  },

  delMany(calls) {
    removeIfbsOfMany(calls[0].host, calls);
    return [];
  },

  check(call) {
    const { ingress, egress } = call.config;
    const result = requirePrevResult(call, "bandwidth");
    if (!ingress && !egress) return;
    const port = findPort(call, result);
    if (ingress) checkBucket(call.host, port, ingress);
    if (egress) checkSending(call, port, egress);
  },

  gc({ host, request, valid }) {
    collectIfbs(host, request.name, valid);
  },

  status() {
    requireKernel();
  },
});

/** The host's end of the container's cable. @throws {CniError} if there is none, or if no plugin before this one named it */
function findPort({ host, netns, ifname }: CheckCall<BandwidthConfig>, { interfaces = [] }: Result): link.Link {
  const inner = link.get(netns.route, ifname);
  const kind = inner.info?.kind;
  if (kind !== "veth") throw unlimitable(ifname, `it is ${kind ? `of kind "${kind}"` : "no virtual interface"}`);
  const port = link.find(host.route, inner.parent ?? 0);
  // The number alone might be that of any link here, if the other end is in a third namespace.
  if (port?.info?.kind !== "veth" || port.parent !== inner.index) {
    throw unlimitable(ifname, "its other end is elsewhere");
  }
  if (interfaces.some(({ name, sandbox }) => name === port.name && !sandbox)) return port;
  throw unlimitable(ifname, `prevResult does not name its other end "${port.name}" as an interface of the host`);
}

const unlimitable = (ifname: string, reason: string) =>
  new CniError(Code.InvalidConfig, `Cannot limit the bandwidth of "${ifname}": ${reason}`, {
    details:
      'put "bandwidth" behind a plugin that connects the container to this host by a veth cable, such as "bridge"',
  });

function warn({ config, ifname, log }: AddCall<BandwidthConfig>, { mtu = 0 }: link.Link): void {
  for (const direction of ["ingress", "egress"] as const) {
    const limit = config[direction];
    const doubt = limit && doubtOf(limit, mtu);
    if (doubt) log(`The ${direction} limit of "${ifname}" is not what it seems: ${doubt}`);
  }
}

/** What the container receives leaves the host by the port. */
function limitReceiving({ host, ifname, undo }: AddCall<BandwidthConfig>, { index }: link.Link, limit: Limit): void {
  const purpose = `limit what "${ifname}" receives`;
  unlimitedYet(purpose, () => qdisc.addTokenBucket(host.route, index, bucketOf(limit)));
  undo.defer(() => void qdisc.removeRoot(host.route, index));
}

/** What the container sends comes in by the port, goes round through an ifb, and waits there. */
function limitSending(call: AddCall<BandwidthConfig>, port: link.Link, limit: Limit): link.Link {
  const { host, owner, ifname, undo } = call;
  const purpose = `limit what "${ifname}" sends`;
  // First, because it fails if there is a limit already, whose ifb must stay.
  unlimitedYet(purpose, () => qdisc.addIngress(host.route, port.index));
  undo.defer(() => void qdisc.removeIngress(host.route, port.index));
  const device = createIfb(host, owner, port.mtu ?? 0);
  undo.defer(() => void removeIfPresent(host, device.name!));
  purposed(() => purpose, () => qdisc.addTokenBucket(host.route, device.index, bucketOf(limit)));
  filter.addRedirect(host.route, port.index, device.index);
  return device;
}

/** Calls what the kernel refuses if there is a limit already. */
function unlimitedYet(purpose: string, call: () => void): void {
  try {
    purposed(() => purpose, call);
  } catch (error) {
    if (!(error instanceof NetlinkError && error.code === "EEXIST")) throw error;
    throw new CniError(Code.InvalidConfig, `Cannot ${purpose}: it is limited already`, {
      details: "by another plugin of the list, by an ADD without a DEL since, or by somebody else",
      cause: error,
    });
  }
}

function checkBucket({ route }: Netns, { index, name }: link.Link, limit: Limit): void {
  const root = qdisc.findRoot(route, index);
  expectEqual(`queueing discipline of "${name}"`, root?.kind, "tbf");
  const found = qdisc.tokenBucketOf(root!);
  const wanted = bucketOf(limit);
  expectEqual(`rate of "${name}" in bytes per second`, found && Number(found.rate), Number(wanted.rate));
  expectEqual(`queue of "${name}" in bytes`, found?.limit, wanted.limit);
  if (found && qdisc.hasBurst(found, wanted)) return;
  throw new CniError(Code.Internal, `Check failed: burst of "${name}" is another than ${wanted.burst} bytes`);
}

function checkSending(
  { host, ifname, owner, prevResult }: CheckCall<BandwidthConfig>,
  port: link.Link,
  limit: Limit,
): void {
  const [device] = findIfbs(host, owner, prevResult);
  if (!device) {
    throw new CniError(
      Code.Internal,
      `Check failed: the ifb that limits what "${ifname}" sends is missing on the host`,
    );
  }
  expectEqual(`administrative state of "${device.name}"`, link.isUp(device) ? "up" : "down", "up");
  checkBucket(host, device, limit);
  const ingress = qdisc.findIngress(host.route, port.index);
  expectEqual(`ingress discipline of "${port.name}"`, ingress?.kind, "ingress");
  const targets = filter.listRedirects(host.route, port.index);
  expectEqual(`link that packets of "${port.name}" are redirected to`, targets[0], device.index);
}

/** Tries everything in a namespace that nobody sees: the kernel loads its parts when they are asked for, and tells of none before. */
function requireKernel(): void {
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
