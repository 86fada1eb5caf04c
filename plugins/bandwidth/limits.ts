import { NetlinkError } from "../../ffi/netlink/error.ts";
import * as filter from "../../ffi/route/filter.ts";
import * as link from "../../ffi/route/link.ts";
import { ifb } from "../../ffi/route/link_kinds.ts";
import * as qdisc from "../../ffi/route/qdisc.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { AddCall, CheckCall } from "../lib/protocol/plugin.ts";
import { createNetns, type Netns } from "../../ffi/netns/netns.ts";
import { SystemError, withPurpose } from "../../ffi/sys/error.ts";
import { expectLink } from "../lib/links/expect_link.ts";
import { removeLinkIfPresent } from "../lib/links/container_link.ts";
import { checkFailedError, expectEqual } from "../lib/protocol/check_failed.ts";
import type { BandwidthConfig, Limit } from "./config.ts";
import { createIfb, findIfbs } from "./ifb.ts";
import { limitWarning, tokenBucketFor } from "./token_bucket.ts";

export const cannotLimitError = (ifname: string, reason: string) =>
  new CniError(Code.InvalidConfig, `Cannot limit the bandwidth of "${ifname}": ${reason}`, {
    details: 'put "bandwidth" after a plugin that connects the container to this host by a veth pair, such as "bridge"',
  });

export function warnOfLimits({ config, ifname, log }: AddCall<BandwidthConfig>, { mtu = 0 }: link.Link): void {
  for (const direction of ["ingress", "egress"] as const) {
    const limit = config[direction];
    const warning = limit && limitWarning(limit, mtu);
    if (warning) log(`The ${direction} limit of "${ifname}" does not work as configured: ${warning}`);
  }
}

/** Received packets leave the host by the host veth. */
export function limitIngress(
  { host, ifname, undo }: AddCall<BandwidthConfig>,
  { index }: link.Link,
  limit: Limit,
): void {
  const purpose = `limit what "${ifname}" receives`;
  refuseSecondLimit(purpose, () => qdisc.addTokenBucket(host.route, index, tokenBucketFor(limit)));
  undo.defer(() => void qdisc.removeRoot(host.route, index));
}

export function limitEgress(call: AddCall<BandwidthConfig>, hostVeth: link.Link, limit: Limit): link.Link {
  const { host, owner, ifname, undo } = call;
  const purpose = `limit what "${ifname}" sends`;
  // First, because it fails if a limit exists: its ifb must stay.
  refuseSecondLimit(purpose, () => qdisc.addIngress(host.route, hostVeth.index));
  undo.defer(() => void qdisc.removeIngress(host.route, hostVeth.index));
  const ifbDevice = createIfb(host, owner, hostVeth.mtu ?? 0);
  undo.defer(() => void removeLinkIfPresent(host, ifbDevice.name!));
  withPurpose(purpose, () => qdisc.addTokenBucket(host.route, ifbDevice.index, tokenBucketFor(limit)));
  filter.addRedirect(host.route, hostVeth.index, ifbDevice.index);
  return ifbDevice;
}

function refuseSecondLimit(purpose: string, addLimit: () => void): void {
  try {
    withPurpose(purpose, addLimit);
  } catch (error) {
    if (!(error instanceof NetlinkError && error.code === "EEXIST")) throw error;
    throw new CniError(Code.InvalidConfig, `Cannot ${purpose}: it is limited already`, {
      details: "by another plugin of the list, by an earlier ADD without a DEL, or by another program",
      cause: error,
    });
  }
}

export function checkTokenBucket({ route }: Netns, { index, name }: link.Link, limit: Limit): void {
  const rootQdisc = qdisc.findRoot(route, index);
  expectEqual(`queueing discipline of "${name}"`, rootQdisc?.kind, "tbf");
  const actual = qdisc.tokenBucketOf(rootQdisc!);
  const expected = tokenBucketFor(limit);
  expectEqual(`rate of "${name}" in bytes per second`, actual && Number(actual.rate), Number(expected.rate));
  expectEqual(`queue of "${name}" in bytes`, actual?.limit, expected.limit);
  if (actual && qdisc.matchesBurst(actual, expected)) return;
  throw checkFailedError(`burst of "${name}" is not ${expected.burst} bytes`);
}

export function checkEgress(
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
  expectLink(`link that packets of "${hostVeth.name}" are redirected to`, host, redirectTargets[0], ifbDevice);
}

/** Uses everything in a new namespace: the kernel loads modules only when used. */
export function requireKernelSupport(): void {
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
