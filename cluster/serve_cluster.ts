import { pollAny } from "../ffi/sys/poll.ts";
import { loadPluginDocs, loadPlugins } from "../plugins/registry.ts";
import { Reflector } from "./api/reflector.ts";
import { parseNode } from "./node.ts";
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
  const { apiServer: server, accountDirectory, lifetime, log, node, what } = options;
  await loadPlugins();
  await loadPluginDocs();
  using part = new ClusterPart(options);
  const ending = new AbortController();
  const own = `?fieldSelector=metadata.name%3D${encodeURIComponent(node)}`;
}
