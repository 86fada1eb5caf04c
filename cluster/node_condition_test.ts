import { expect } from "bun:test";
import type { INode } from "kubernetes-models/v1/Node";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { currentNetns } from "../ffi/netns/netns.ts";
import { ApiServer } from "../testing/api_server.ts";
import { testWith } from "../testing/binary.ts";
import { newNode } from "../testing/cluster_nodes.ts";
import { useDirectory } from "../testing/directory.ts";
import { ApiClient } from "./api/client.ts";
import { PATIENCE } from "./api/patience.ts";
import { type ConditionedNode, NodeCondition } from "./node_condition.ts";

const account = useDirectory("cni-account-");
const LIMITS = { answerMs: PATIENCE.answerMs, silenceMs: PATIENCE.answerMs };

testWith(["openssl"], "what is heard while the condition is said is not forgotten", async () => {
  using host = currentNetns();
  using server = new ApiServer(host, { address: "127.0.0.1", directory: account, token: "t1", objects: [newNode(1)] });
  writeFileSync(join(account, "token"), "t1\n");
  server.mayPatchStatus = true;
  const client = new ApiClient({ server: server.url, accountDirectory: account });
  const { signal } = new AbortController();
  const condition = new NodeCondition({ client, node: "node-1", signal, log: () => {} });
  condition.see(newNode(1) as ConditionedNode);
  const asking = condition.look();
  condition.see(
    newNode(1, { status: { conditions: [{ type: "NetworkUnavailable", status: "True" }] } }) as ConditionedNode,
  );
  await asking;
  await condition.look();
  expect(server.requests).toHaveLength(2);
});

testWith(["openssl"], "a node whose network is up says so, whatever the API said before, and once only", async () => {
  using host = currentNetns();
  const objects = [1, 2].map((index) => newNode(index));
  using server = new ApiServer(host, { address: "127.0.0.1", directory: account, token: "t1", objects });
  writeFileSync(join(account, "token"), "t1\n");
  const client = new ApiClient({ server: server.url, accountDirectory: account });
  const { signal } = new AbortController();
  const nodeOf = async (name: string): Promise<INode> =>
    JSON.parse(await client.getText(`/api/v1/nodes/${name}`, signal, LIMITS));
  const log: string[] = [];
  const newCondition = () => new NodeCondition({ client, node: "node-1", signal, log: (line) => void log.push(line) });
  const refused = newCondition();
  refused.see(await nodeOf("node-1") as ConditionedNode);
  for (let i = 0; i < 3; i++) await refused.look();
  expect(log.splice(0)).toEqual([
    `Cannot set the condition NetworkUnavailable of node "node-1": ${server.url} answers 403: ` +
    "nodes/status is forbidden; deploy/node-condition has the right that it needs",
  ]);

  server.mayPatchStatus = true;
  const condition = newCondition();
  condition.see(await nodeOf("node-2") as ConditionedNode);
  await condition.look();
  expect(log).toEqual([]);
  for (const status of [undefined, "True", "Unknown"]) {
    const { conditions = [] } = newNode(1).status!;
    const said = status === undefined ? [] : [{ type: "NetworkUnavailable", status, reason: "NoRouteCreated" }];
    server.put(newNode(1, { status: { conditions: [...conditions, ...said] } }));
    condition.see(await nodeOf("node-1") as ConditionedNode);
    await condition.look();
    const node = await nodeOf("node-1");
    expect(node.status!.conditions!.map(({ type, status: each }) => `${type} ${each}`).sort()).toEqual([
      "DiskPressure False",
      "MemoryPressure False",
      "NetworkUnavailable False",
      "PIDPressure False",
      "Ready True",
    ]);
    expect(node.status!.conditions!.at(-1)).toMatchObject({ reason: "RoutesAndRulesInKernel" });
    condition.see(node as ConditionedNode);
    await condition.look();
  }
  expect(log).toEqual(Array(3).fill('Node "node-1" has the condition NetworkUnavailable=False'));
  expect(server.requests.filter((request) => request.startsWith("PATCH"))).toHaveLength(4);
});
