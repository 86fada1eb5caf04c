import { deleteFlows, type Flow, listFlows } from "../../ffi/conntrack/conntrack.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import type { StaleFlowsRepair } from "./finding.ts";

type Target = Pick<StaleFlowsRepair, "family" | "protocol" | "hostPort" | "container" | "containerPort">;

/** To all destinations: other hosts' services have the same port. */
export function listFlowsElsewhere(nl: Netlink, target: Target): Flow[] {
  const { family, protocol, hostPort } = target;
  return listFlows(nl, { family, protocol, originalPort: hostPort }).filter((flow) => leadsElsewhere(flow, target));
}

export function deleteStaleFlows(nl: Netlink, repair: StaleFlowsRepair): void {
  const { family, protocol, hostPort, destination } = repair;
  const filter = { family, protocol, originalPort: hostPort, originalAddress: destination };
  deleteFlows(nl, filter, (flow) => leadsElsewhere(flow, repair));
}

function leadsElsewhere({ replySource, replySourcePort }: Flow, { container, containerPort }: Target): boolean {
  return replySource !== container || replySourcePort !== containerPort;
}
