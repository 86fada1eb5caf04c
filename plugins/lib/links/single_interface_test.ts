/** What becomes of many attachments at once. */
import { expect, test } from "bun:test";
import { newNamespaces } from "../../../testing/netns.ts";
import { newHostContext, newRequest } from "../../../testing/plugin_call.ts";
import dummy from "../../dummy/plugin.ts";
import ipvlan from "../../ipvlan/plugin.ts";
import macvlan from "../../macvlan/plugin.ts";
import { anything } from "../../../spec/schema.ts";
import tap from "../../tap/plugin.ts";
import vlan from "../../vlan/plugin.ts";
import { handle } from "../protocol/handle.ts";
import { plugin } from "../protocol/plugin.ts";
import { parseCall } from "../protocol/serve.ts";

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
    const context = newHostContext({
      host: namespaces.host,
      findPlugin: (name) => [own, ipam].find((each) => each.name === name),
      log: told,
    });
    const config = { master: "up0", ipam: { type: "many" } };
    const requests = ["c1", "c2", "c3"].map((containerId) =>
      parseCall(own, newRequest(type, "DEL", config, { containerId, netns: "/nonexistent" }), context)
    );
    const { remaining } = handle(own, { command: "DEL_BATCH", requests }, context);
    expect(remaining).toEqual([requests[1]!]);
    expect(asked).toEqual(["c1,c2,c3"]);
    expect(told).toEqual([]);
  },
);
