import type { NetworkAttachment } from "../runtime/attachments.ts";

/**
 * Leaves out loopback interfaces of containers that have another attachment.
 *
 * Engines attach `lo` by a network of their own: containerd by `cni-loopback`.
 */
export function withoutLoopbacks<A extends NetworkAttachment>(attachments: readonly A[]): A[] {
  const isLoopback = ({ ifname }: NetworkAttachment) => ifname === "lo";
  const others = new Set(
    attachments.filter((attachment) => !isLoopback(attachment)).map(({ containerId }) => containerId),
  );
  return attachments.filter((attachment) => !isLoopback(attachment) || !others.has(attachment.containerId));
}
