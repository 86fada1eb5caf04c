/** A node that is nowhere: its routes tell who has heard of it. @module */
import { routedRanges } from "../../../testing/cluster_routes.ts";
import type { ApiRequest, KubernetesApi } from "./api_access.ts";
import type { FaultNode } from "./fault_nodes.ts";
import { untilTrue } from "./kubectl.ts";

export const NODES = "/api/v1/nodes";
/** Without labels, it gets no pod. */
const OTHER = {
  apiVersion: "v1",
  kind: "Node",
  metadata: { name: "other" },
  spec: { podCIDR: "10.244.99.0/24", podCIDRs: ["10.244.99.0/24", "fd44:0:0:63::/64"] },
  status: { addresses: [{ type: "InternalIP", address: "198.18.0.99" }] },
};

export interface FaultScene extends KubernetesApi {
  /** The API server is on the first one. */
  readonly nodes: readonly FaultNode[];
}

export async function send(
  request: ApiRequest,
  path: string,
  method: string,
  body?: object,
  type = "application/json",
) {
  const answer = await request(path, {
    method,
    ...body && { body: JSON.stringify(body), headers: { "content-type": type } },
  });
  return await answer.json();
}

export const addOtherNode = (request: ApiRequest): Promise<unknown> => send(request, NODES, "POST", OTHER);
export const removeOtherNode = (request: ApiRequest): Promise<unknown> => send(request, `${NODES}/other`, "DELETE");

export const hasRangeRoute = ({ netns }: FaultNode, range: string): boolean => routedRanges(netns).includes(range);
export const knowsOtherNode = (node: FaultNode): boolean =>
  OTHER.spec.podCIDRs.every((range) => hasRangeRoute(node, range));

export const untilOtherKnown = (nodes: readonly FaultNode[]): Promise<void> =>
  untilTrue("Hearing of a node", () => Promise.resolve(nodes.every(knowsOtherNode)));
export const untilOtherForgotten = (nodes: readonly FaultNode[]): Promise<void> =>
  untilTrue("Forgetting a node", () => Promise.resolve(!nodes.some(knowsOtherNode)));

/** Waits until the API answers and all nodes follow it. */
export async function follow({ nodes, request }: FaultScene): Promise<void> {
  await untilTrue("Making a node", () => addOtherNode(request).then(() => true, () => false));
  await untilOtherKnown(nodes);
  await removeOtherNode(request);
  await untilOtherForgotten(nodes);
}
