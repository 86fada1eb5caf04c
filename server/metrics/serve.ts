import { removeFile } from "../../ffi/sys/file.ts";
import { sys } from "../../ffi/sys/libc.ts";
import { messageLogger } from "../call_log.ts";
import { type ClusterStatus, findClusterStatus } from "../../cluster/status.ts";
import { isCurrent } from "../../cluster/status_file.ts";
import { findPolicyStatus, type PolicyStatus } from "../../policy/status.ts";
import { partPaths } from "../part_definitions.ts";
import type { PartDescriptors, PartSettings } from "../part_settings.ts";
import type { Report } from "../reports.ts";
import { isServerReady } from "../sockets.ts";
import { type ListenAddress, parseMetricsAddress } from "./address.ts";
import { readMetrics } from "./read.ts";
import { type MetricsRegistry, newMetricsRegistry } from "./registry.ts";

export async function serveMetrics(settings: PartSettings, { lifetime, reports }: PartDescriptors): Promise<void> {
  const registry = newMetricsRegistry();
  const logMessage = messageLogger(settings.logFormat);
  const log = onceEach((message) => logMessage(`metrics: ${message}`));
  const address = parseMetricsAddress(settings.metricsAddress!);
  // Who may not use the server's socket may not use this one.
  sys.umask(0o177);
  if ("unix" in address) removeFile(address.unix);
  const listener = listen(address, (request) => answer(request, registry, settings, log), log);
  void readReports(reports, registry);
  await untilClosed(lifetime);
  await listener.stop(true);
}

function listen(
  address: ListenAddress,
  fetch: (request: Request) => Promise<Response>,
  log: (message: string) => void,
) {
  const error = ({ message }: Error) => {
    log(message);
    return new Response("failed\n", { status: 500 });
  };
  try {
    return Bun.serve({ ...address, development: false, fetch, error });
  } catch (error) {
    const place = "unix" in address ? address.unix : `${address.hostname} port ${address.port}`;
    throw new RangeError(`Cannot serve metrics on "${place}": ${(error as Error).message}`);
  }
}

async function answer(
  request: Request,
  registry: MetricsRegistry,
  settings: PartSettings,
  log: (message: string) => void,
): Promise<Response> {
  const { pathname } = new URL(request.url);
  if (pathname === "/healthz") return new Response("ok\n");
  if (pathname === "/readyz") {
    const obstacle = findObstacle(settings);
    return new Response(`${obstacle ?? "ok"}\n`, { status: obstacle === undefined ? 200 : 503 });
  }
  if (pathname !== "/metrics") return new Response("not found\n", { status: 404 });
  readMetrics(registry, settings, log);
  const { contentType, text } = await registry.format(request.headers.get("accept") ?? "");
  return new Response(text, { headers: { "content-type": contentType } });
}

const findObstacle = (settings: PartSettings): string | undefined =>
  isServerReady(settings.socket) ? findPartObstacle(settings) : "not ready for calls";

/** Why this server's parts are not ready. Once ready, an API server that is away does not matter. */
export function findPartObstacle(
  { directory, cluster, policy }: Pick<PartSettings, "directory" | "cluster" | "policy">,
): string | undefined {
  const nodes = cluster && findClusterStatus(partPaths(directory, "cluster").state);
  const policies = policy && findPolicyStatus(partPaths(directory, "policy").state);
  return (cluster && describeObstacle("not in step with the cluster yet", nodes)) ??
    (policy && describeObstacle("policies are not in force yet", policies));
}

/** What an earlier server has left of its parts does not count. */
function describeObstacle(what: string, status: ClusterStatus | PolicyStatus | undefined): string | undefined {
  const current = status && isCurrent(status) ? status : undefined;
  return current?.isSynced ? undefined : [what, ...current?.problems ?? []].join("; ");
}

/** Reads until all writers are gone. */
export async function readReports(pipe: number, registry: MetricsRegistry): Promise<void> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const bytes of Bun.file(pipe).stream()) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split("\n");
    rest = lines.pop()!;
    for (const line of lines) countReport(registry, line);
  }
}

function countReport(registry: MetricsRegistry, line: string): void {
  const report = parseReport(line);
  if (!report) return;
  if ("program" in report) registry.countCall(report);
  else registry.count(report);
}

/** Returns `undefined` for the end of a line, whose beginning a killed process has taken. */
function parseReport(line: string): Report | undefined {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

async function untilClosed(pipe: number): Promise<void> {
  for await (const _ of Bun.file(pipe).stream());
}

/** The same problem is seen at each request. */
function onceEach(log: (message: string) => void): (message: string) => void {
  const seen = new Set<string>();
  return (message) => {
    if (seen.has(message)) return;
    seen.add(message);
    log(message);
  };
}
