/** What a reflector keeps of the nodes of an API server. @module */
import type { Patience } from "../cluster/api/patience.ts";
import { type ListVerdict, reflect } from "../cluster/api/reflector.ts";
import type { ApiServer } from "./api_server.ts";
import type { newNode } from "./cluster_nodes.ts";

/** Tests do not wait as long as nodes. */
export const SHORT_PATIENCE: Patience = {
  firstPauseMs: 10,
  longestPauseMs: () => 50,
  lastingMs: 200,
  answerMs: 2000,
  silenceMs: 2000,
  wholeMs: 4000,
};

interface ParsedNode {
  readonly name: string;
  readonly label: string | undefined;
}

/** A copy of the server's nodes, and all that was told of it. */
export class NodeCopy implements Disposable {
  readonly labels = new Map<string, string | undefined>();
  readonly lists: string[] = [];
  readonly log: string[] = [];
  heard = 0;
  /** What keeps it from following, until something is heard. */
  problem: string | undefined;
  readonly #controller = new AbortController();
  readonly ended: Promise<void>;

  constructor(
    server: Pick<ApiServer, "url">,
    account: string,
    { patience = {}, verdict = () => "taken", version, fieldSelector }: {
      readonly fieldSelector?: string;
      readonly patience?: Partial<Patience>;
      readonly verdict?: () => ListVerdict;
      readonly version?: string;
    } = {},
  ) {
    this.ended = reflect<ParsedNode>({
      access: { server: server.url, accountDirectory: account },
      path: "/api/v1/nodes",
      kind: "Node",
      fieldSelector,
      version,
      parse: ({ metadata: { name, labels }, spec }: ReturnType<typeof newNode> & { metadata: { name: string } }) => {
        if (spec?.podCIDR === "nonsense") throw new RangeError("nonsense is no range");
        return { name, label: labels?.["label"] };
      },
      onList: (items, listVersion) => {
        const taken = verdict();
        if (taken !== "taken") return taken;
        this.labels.clear();
        for (const { name, label } of items) this.labels.set(name, label);
        this.lists.push(listVersion);
        return "taken";
      },
      onEvent: (type, { name, label }) => {
        if (type === "DELETED") this.labels.delete(name);
        else this.labels.set(name, label);
      },
      onHeard: () => {
        this.heard++;
        this.problem = undefined;
      },
      onProblem: (problem) => void (this.problem = problem),
      log: (message) => this.log.push(message),
      signal: this.#controller.signal,
      patience: { ...SHORT_PATIENCE, ...patience },
    });
  }

  get names(): string {
    return [...this.labels.keys()].sort().join(" ");
  }

  [Symbol.dispose](): void {
    this.#controller.abort();
  }
}
