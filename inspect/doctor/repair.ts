import type { Netns } from "../../ffi/netns/netns.ts";
import { executeAll } from "../../ffi/netlink/socket.ts";
import * as address from "../../ffi/route/address.ts";
import * as link from "../../ffi/route/link.ts";
import * as neighbour from "../../ffi/route/neighbour.ts";
import * as route from "../../ffi/route/route.ts";
import { ensureSysctl } from "../../ffi/sys/sysctl.ts";
import { enableForwarding } from "../../plugins/lib/links/forwarding.ts";
import type { RuntimeContext } from "../../runtime/context.ts";
import { restoreAttachments } from "../../runtime/restore.ts";
import type { Repair } from "./finding.ts";
import { deleteStaleFlows } from "./stale_flows.ts";

/** Call it with all plugins loaded. @throws {SystemError} */
export function applyRepair(runtime: RuntimeContext, repair: Repair): void {
  const { host, openNetns } = runtime.hostContext;
  if (repair.kind === "forwarding") return enableForwarding(host, [repair.family], runtime.log);
  if (repair.kind === "restore") return void restoreAttachments(runtime, repair.network);
  if (!("netns" in repair) || repair.netns === undefined) return changeNamespace(host, repair);
  using netns = openNetns(repair.netns);
  changeNamespace(netns, repair);
}

function changeNamespace(netns: Netns, repair: Exclude<Repair, { kind: "restore" | "forwarding" }>): void {
  const nl = netns.route;
  switch (repair.kind) {
    case "sysctl":
      return netns.run<void>(() => ensureSysctl(repair.name, repair.value));
    case "link-up":
      return link.setUp(nl, link.get(nl, repair.link).index);
    case "bridge-port":
      return link.set(nl, repair.link, { master: link.get(nl, repair.bridge).index });
    case "mtu":
      return link.set(nl, repair.link, { mtu: repair.mtu });
    case "address":
      // The check has seen that nobody else of the network has it, so the wire is not asked.
      return void executeAll(nl, [
        address.addRequest(link.get(nl, repair.link).index, repair.address, { noDad: true }),
      ]);
    case "route":
      return void executeAll(nl, [route.replaceRequest({ ...repair, oif: link.get(nl, repair.link).index })]);
    case "neighbour":
      return neighbour.remove(nl, link.get(nl, repair.link).index, repair.address);
    case "conntrack":
      return deleteStaleFlows(netns.nft, repair);
  }
}
