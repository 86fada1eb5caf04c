/** What a dry run says of requests that change something, and asks in their place. */
import { ipOf } from "../../ffi/address.ts";
import type { ServerRehearsal } from "../../ffi/sys/observer.ts";
import { CniError, Code } from "../../spec/error.ts";
import { type DhcpQuestion, type DhcpServerAnswer, leaseKey } from "./protocol.ts";

export function describeRequest({ command, settings, attachment, network }: DhcpQuestion): string {
  if (command === "add") return `lease an address for ${leaseKey(settings!)}`;
  return command === "gc"
    ? `release stale leases of network "${network}"`
    : `release the lease of ${leaseKey(attachment!)}`;
}

/** @param ask takes requests that only read */
export function rehearseRequest(
  request: DhcpQuestion,
  { tell, abandon }: ServerRehearsal,
  ask: (question: DhcpQuestion) => DhcpServerAnswer,
): DhcpServerAnswer {
  switch (request.command) {
    case "add":
      // A real one needs a server, too.
      ask({ command: "status" });
      tell(describeRequest(request));
      return abandon();
    case "gc":
      for (const lease of ask({ ...request, command: "stale" }).released ?? []) tell(`release ${lease}`);
      return {};
    default: {
      const address = findLeasedAddress(() => ask({ ...request, command: "check" }));
      if (address !== undefined) tell(`release ${address} of ${request.attachment!.containerId}`);
      return {};
    }
  }
}

function findLeasedAddress(check: () => DhcpServerAnswer): string | undefined {
  try {
    return ipOf(check().lease!.address);
  } catch (error) {
    // DEL of an attachment without a lease releases nothing.
    if (error instanceof CniError && error.code === Code.Internal) return undefined;
    throw error;
  }
}
