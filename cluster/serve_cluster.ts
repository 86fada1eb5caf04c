import { sys } from "../ffi/sys/libc.ts";
import { pollAny } from "../ffi/sys/poll.ts";
import { loadPluginDocs } from "../plugins/docs_registry.ts";
import { loadPlugins } from "../plugins/registry.ts";
import { reflect } from "./api/reflector.ts";
import { ApiClient } from "./api/client.ts";
import { type NodeObject, trimNodeEvent } from "./node.ts";
import { type ConditionedNode, NodeCondition } from "./node_condition.ts";
import { ClusterPart, type ClusterPartOptions } from "./part.ts";

export interface ServeClusterOptions extends ClusterPartOptions {
  /** Has `token` and `ca.crt` of the service account. */
  readonly accountDirectory: string;
  /** Ends the part when it can be read: a pipe whose other end the server has. */
  readonly lifetime: number;
}

const LOOK_INTERVAL_MS = 1000;

/** Returns when the server has ended. What is in the kernel stays: pods keep their network. */
export async function serveCluster(options: ServeClusterOptions): Promise<void> {
  const { apiServer: server, accountDirectory, lifetime, log, node, what, setsCondition } = options;
  const access = { server, accountDirectory };
  // Other users' engines read the network's file.
  sys.umask(0o022);
  await Promise.all([loadPlugins(), loadPluginDocs()]);
  using part = new ClusterPart(options);
  const ending = new AbortController();
  let connection = new AbortController();
  const condition = setsCondition
    ? new NodeCondition({ client: new ApiClient(access), node, signal: ending.signal, log })
    : undefined;
  let catchingUp: Timer | undefined;
  const catchUp = () => {
    catchingUp = undefined;
    part.catchUp();
  };
  const follow = (signal: AbortSignal) =>
    reflect({
      access,
      path: "/api/v1/nodes",
      kind: "Node",
      fieldSelector: what === "ranges" ? `metadata.name=${node}` : undefined,
      version: part.version,
      // Of this node, conditions are of interest as well.
      trim: (line) => trimNodeEvent(line, condition && node),
      parse: (object: NodeObject & ConditionedNode) => {
        condition?.see(object);
        return part.read(object);
      },
      onList: (nodes, version) => part.takeList(nodes, version),
      onEvent(type, found, version) {
        part.takeEvent(type, found, version);
        // Not before all events that have arrived are taken. Most change nothing, and would wake the process again.
        if (part.isBehind) catchingUp ??= setTimeout(catchUp);
      },
      onHeard: () => part.hear(),
      onProblem: (problem) => part.noteApiProblem(problem),
      clients: () => part.nodeCount,
      log,
      signal,
    });
  const timer = setInterval(() => {
    if (pollAny([lifetime], 0).length > 0) ending.abort();
    else if (part.look()) connection.abort();
    if (part.isSynced) void condition?.look();
  }, LOOK_INTERVAL_MS);
  try {
    while (!ending.signal.aborted) {
      connection = new AbortController();
      await follow(AbortSignal.any([ending.signal, connection.signal]));
    }
  } finally {
    clearInterval(timer);
    clearTimeout(catchingUp);
  }
}
