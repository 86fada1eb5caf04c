/** Tells the API that the node's network is up. Clouds keep pods away from a node until somebody does. @module */
import type { ApiClient } from "./api/client.ts";
import { PATIENCE } from "./api/patience.ts";
import { ApiProblem } from "./api/problem.ts";

/** @see Kubernetes API v1 NodeCondition */
interface Condition {
  readonly type: string;
  readonly status: string;
}

/** The parts of a Node that {@linkcode NodeCondition} reads. */
export interface ConditionedNode {
  readonly metadata: { readonly name: string };
  readonly status?: { readonly conditions?: readonly Condition[] };
}

export interface NodeConditionOptions {
  readonly client: ApiClient;
  readonly node: string;
  readonly signal: AbortSignal;
  log(message: string): void;
}

const TYPE = "NetworkUnavailable";
/** What was refused is tried again. */
const RETRY_MS = 30_000;

export class NodeCondition {
  readonly #options: NodeConditionOptions;
  /** Whether the API says something else than that the network is up. */
  #isDue = false;
  #isAsking = false;
  #nextTry = -Infinity;
  #problem: string | undefined;

  constructor(options: NodeConditionOptions) {
    this.#options = options;
  }

  /** Call it for each Node that is heard of. */
  see({ metadata, status = {} }: ConditionedNode): void {
    if (metadata.name !== this.#options.node) return;
    this.#isDue = status.conditions?.find(({ type }) => type === TYPE)?.status !== "False";
  }

  /** Call it once a second while the network is up. */
  async look(): Promise<void> {
    if (!this.#isDue || this.#isAsking || performance.now() < this.#nextTry) return;
    const { node, log, signal } = this.#options;
    this.#isAsking = true;
    // What is heard meanwhile may be newer than what is said.
    this.#isDue = false;
    try {
      await this.#set();
      this.#problem = undefined;
      log(`Node "${node}" has the condition ${TYPE}=False`);
    } catch (error) {
      if (!(error instanceof ApiProblem)) throw error;
      this.#isDue = true;
      this.#nextTry = performance.now() + RETRY_MS;
      if (error.message === this.#problem || signal.aborted) return;
      this.#problem = error.message;
      const advice = error.status === 403 ? "; deploy/node-condition has the right that it needs" : "";
      log(`Cannot set the condition ${TYPE} of node "${node}": ${error.message}: ${error.details ?? ""}${advice}`);
    } finally {
      this.#isAsking = false;
    }
  }

  async #set(): Promise<void> {
    const { client, node, signal } = this.#options;
    const now = new Date().toISOString();
    const condition = {
      type: TYPE,
      status: "False",
      reason: "RoutesAndRulesInKernel",
      message: "cni serve has connected this node with all nodes that it knows",
      lastHeartbeatTime: now,
      lastTransitionTime: now,
    };
    const { answerMs } = PATIENCE;
    const limits = { answerMs, silenceMs: answerMs, wholeMs: answerMs };
    await client.patch(`/api/v1/nodes/${node}/status`, { status: { conditions: [condition] } }, signal, limits);
  }
}
