/** What many Nodes cost a real API server, and the part that routes to them. @module */
import { newNode } from "../../../testing/cluster_nodes.ts";
import { markdownTable } from "../harness/markdown.ts";
import { peakPrivateBytes, processorMsOf } from "../harness/process_cost.ts";
import { runSuccessfully } from "../harness/process.ts";
import { type ApiRequest as Request, readAccess } from "./api_access.ts";
import { allProcesses, readProc } from "./holder.ts";
import { untilTrue } from "./kubectl.ts";

const PART = "cni-cluster";
const NODES = "/api/v1/nodes";
const ALL_ROUTES = "Routes to all nodes";
const REQUESTS_AT_ONCE = 20;
const LISTS = 5;
const EVENTS = 200;
const WATCHES = 200;
/** Its cache follows etcd a moment later. */
const QUIET_MS = 2000;

/** Runs among the processes of a cluster of one node. */
export async function measureManyNodes(count: number): Promise<void> {
  const { request } = readAccess();
  const server = findProcess("kube-apiserver");
  // It would change each Node that no kubelet looks after.
  process.kill(findProcess("kube-controller"), "SIGSTOP");
  const part = findProcess(PART);
  const few = peakPrivateBytes(part);
  await inTurn(count, (index) => request(NODES, { method: "POST", body: JSON.stringify(newNode(index)) }));
  await untilTrue(ALL_ROUTES, () => Promise.resolve(hasRoutes(part, count)));
  const restarted = await restartPart(part, count);
  const rows = [
    ["the part: peak of private memory above that with one node", megabytes(restarted.peakBytes - few)],
    ["the part: from its start to all routes", `${(restarted.ms / 1000).toFixed(1)} s`],
    ["the part: processor time for that", `${restarted.processorMs} ms`],
  ];
  await Bun.sleep(QUIET_MS);
  const idle = processorMsOf(server);
  let bytes = 0;
  for (let list = 0; list < LISTS; list++) bytes = (await (await request(`${NODES}?resourceVersion=0`)).bytes()).length;
  rows.push(
    ["size of a list", megabytes(bytes)],
    ["the API server: processor time for a list", `${((processorMsOf(server) - idle) / LISTS).toFixed(0)} ms`],
  );
  const alone = await eventMs(request, server, 1, count);
  const watched = await eventMs(request, server, WATCHES, count);
  rows.push(
    ["the API server: processor time for a change of a node", `${alone.toFixed(2)} ms`],
    ["the same for each watch of nodes", `${((watched - alone) / (WATCHES - 1)).toFixed(3)} ms`],
    ["the API server: peak of private memory", megabytes(peakPrivateBytes(server))],
  );
  console.log(markdownTable([`${count} Nodes in a real API server`, ""], rows));
}

const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(0)} MB`;

async function inTurn(count: number, send: (index: number) => Promise<Response>): Promise<void> {
  let next = 0;
  await Promise.all(Array.from({ length: REQUESTS_AT_ONCE }, async () => {
    // An answer that nobody reads keeps its connection.
    while (next < count) await (await send(next++)).bytes();
  }));
}

/** @returns milliseconds of processor time of the API server for a change that so many watches are told */
async function eventMs(request: Request, server: number, watches: number, count: number): Promise<number> {
  const list = await request(`${NODES}?limit=1`);
  const { metadata: { resourceVersion } } = await list.json() as { metadata: { resourceVersion: string } };
  using ending = new AbortOnDispose();
  let lines = 0;
  for (let watch = 0; watch < watches; watch++) {
    const path = `${NODES}?watch=1&resourceVersion=${resourceVersion}`;
    const { body } = await request(path, { signal: ending.signal });
    const read = async () => {
      for await (const piece of body!) lines += piece.filter((byte: number) => byte === 0x0a).length;
    };
    read().catch(() => {});
  }
  const before = processorMsOf(server);
  await inTurn(EVENTS, (index) =>
    request(`${NODES}/node-${index % count}/status`, {
      method: "PATCH",
      headers: { "content-type": "application/merge-patch+json" },
      body: JSON.stringify({ status: { nodeInfo: { bootID: crypto.randomUUID() } } }),
    }));
  await untilTrue("Events", () => Promise.resolve(lines >= EVENTS * watches));
  return (processorMsOf(server) - before) / EVENTS;
}

class AbortOnDispose implements Disposable {
  readonly #controller = new AbortController();

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  [Symbol.dispose](): void {
    this.#controller.abort();
  }
}

/** The next one finds no routes, as after a boot. */
async function restartPart(former: number, count: number) {
  process.kill(former, "SIGSTOP");
  for (const family of ["-4", "-6"]) {
    runSuccessfully({
      argv: ["nsenter", "--net", `--target=${former}`, "ip", family, "route", "flush", "proto", "67"],
    });
  }
  process.kill(former, "SIGKILL");
  let pid = former;
  await untilTrue("The part's start", () => {
    pid = processes(PART).find((each) => each !== former) ?? former;
    return Promise.resolve(pid !== former);
  });
  const started = performance.now();
  await untilTrue(ALL_ROUTES, () => Promise.resolve(hasRoutes(pid, count)));
  return { ms: performance.now() - started, peakBytes: peakPrivateBytes(pid), processorMs: processorMsOf(pid) };
}

/** Looks at those of IPv4, below a title. */
const hasRoutes = (pid: number, count: number): boolean => readProc(pid, "net/route").split("\n").length > count;

const processes = (comm: string): number[] => allProcesses().filter((pid) => readProc(pid, "comm").startsWith(comm));

function findProcess(comm: string): number {
  const [pid] = processes(comm);
  if (pid === undefined) throw new Error(`No ${comm} runs`);
  return pid;
}
