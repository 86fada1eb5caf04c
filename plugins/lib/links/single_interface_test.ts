/** What becomes of many attachments at once. */
import { expect, test } from "bun:test";
import { openNetns } from "../../../ffi/netns.ts";
import { newNamespaces } from "../../../testing/netns.ts";
import dummy from "../../dummy/plugin.ts";
import ipvlan from "../../ipvlan/plugin.ts";
import macvlan from "../../macvlan/plugin.ts";
import { anything } from "../../../spec/schema.ts";
import tap from "../../tap/plugin.ts";
import vlan from "../../vlan/plugin.ts";
import type { PluginRequest } from "../protocol/delegate.ts";
import { plugin } from "../protocol/plugin.ts";
import type { HostContext } from "../protocol/serve.ts";
import { builtinBatchInvoker } from "../protocol/serve_batch.ts";

test.each([dummy, ipvlan, macvlan, tap, vlan].map((each) => [each.name, each] as const))(
  "%s gives the addresses of many back together, and tells whose are left",
  (type, own) => {
    using namespaces = newNamespaces();
    const asked: string[] = [];
    const told: string[] = [];
    const ipam = plugin({
      name: "many",
      about: "Takes addresses back",
      config: anything,
      add: () => ({}),
      del: ({ containerId }) => void asked.push(containerId),
      delBatch(calls) {
        asked.push(calls.map(({ containerId }) => containerId).join());
        return calls.filter(({ containerId }) => containerId === "c2");
      },
      check: () => {},
    });
    const surroundings: HostContext = {
      host: namespaces.host,
      openNetns,
      invoker: () => invoker,
      log: (message) => void told.push(message),
    };
    const invoker = builtinBatchInvoker((name) => [own, ipam].find((each) => each.name === name), surroundings);
    const requests = ["c1", "c2", "c3"].map((id): PluginRequest => ({
      command: "DEL",
      env: { CNI_CONTAINERID: id, CNI_IFNAME: "eth0", CNI_NETNS: "/nonexistent" },
      stdin: JSON.stringify({ cniVersion: "1.1.0", name: "net", type, master: "up0", ipam: { type: "many" } }),
    }));
    expect(invoker.delBatch(type, requests)).toEqual([requests[1]!]);
    expect(asked).toEqual(["c1,c2,c3"]);
    expect(told).toEqual([]);
  },
);
