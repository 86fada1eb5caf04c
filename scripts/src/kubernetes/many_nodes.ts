/** What many Nodes cost a real API server, and the part that routes to them. @module */
import { type Netns, openNetns } from "../../../ffi/netns/netns.ts";
import { newNode, nodeAddress } from "../../../testing/cluster_nodes.ts";
import { type BenchRow, countGoals, row } from "../bench/table.ts";
import { clusterRoutesOf, hasRouteTo, routeDestination } from "../../../testing/cluster_routes.ts";
import { markdownTable } from "../harness/markdown.ts";
import { peakPrivateBytes, processorMsOf, resetPeak } from "../harness/process_cost.ts";
import { runSuccessfully } from "../harness/process.ts";
import { type ApiRequest as Request, readAccess } from "./api_access.ts";
import { allProcesses, readProc } from "./holder.ts";
import { untilTrue } from "./kubectl.ts";

const PART = "cni-cluster";
const API_SERVER = "kube-apiserver";
const NODES = "/api/v1/nodes";
const ALL_ROUTES = "Routes to all nodes";
const REQUESTS_AT_ONCE = 20;
const LISTS = 5;
/** Processor time is counted in hundredths of a second. */
const EVENTS = 2000;
const WATCHED_EVENTS = 200;
const WATCHES = 200;
/** Its cache follows etcd a moment later. */
const QUIET_MS = 2000;
/** The part stores nodes after three seconds. */
const SETTLING_MS = 6000;
/** The address that comes last in each step, so that what was before it is done when it has its route. */
const LAST = ["198.51.100.1", "198.51.100.2", "198.51.100.3"] as const;

interface ManyNodes {
  readonly count: number;
  readonly request: Request;
  /** The network of the node that has the part. */
  readonly netns: Netns;
  readonly part: number;
  /** The peak of its memory with one node. */
  readonly fewBytes: number;
  /** How many routes of IPv4 its node has with all of them. */
  readonly routeCount: number;
}

/** Of the part, by what happened: peak private memory, processor time, the time until the kernel had it. */
interface PartFigure {
  readonly peakBytes: number;
  readonly processorMs: number;
  readonly ms: number;
}

/** Runs among the processes of a cluster of one node. @returns 1 if a goal is missed */
export async function measureManyNodes(count: number): Promise<number> {
  const { request } = readAccess();
  // It would change each Node that no kubelet looks after.
  process.kill(findProcess("kube-controller"), "SIGSTOP");
  const former = findProcess(PART);
  const fewBytes = peakPrivateBytes(former);
  const routeCount = countRoutes(former) + count;
  using netns = openNetns(`/proc/${former}/ns/net`);
  await inTurn(count, (index) => createNode(request, newNode(index)));
  await untilTrue(ALL_ROUTES, () => Promise.resolve(countRoutes(former) >= routeCount));
  const restarted = await restartPart(former, routeCount);
  const nodes: ManyNodes = { count, request, netns, part: restarted.pid, fewBytes, routeCount };
  const rows = [
    memoryRow(nodes, "at its start", restarted),
    row("the part: from its start to all routes", "alone", [restarted.ms], undefined, { atMost: 5000 }),
    row("the part: processor time of its start", "alone", [restarted.processorMs]),
    ...await eventRows(nodes),
    ...await againRows(nodes),
    ...await apiServerRows(nodes),
    // Last, as it ends the API server that the rows before are of.
    memoryRow(nodes, "at a list of all again, when the API server was killed", await listAgain(nodes)),
  ];
  const cells = rows.map(({ what, result, goal, verdict }) => [what, result, goal, verdict]);
  console.log(markdownTable([`${count} Nodes in a real API server`, "", "goal", ""], cells));
  return countGoals(rows).missed > 0 ? 1 : 0;
}

const memoryRow = ({ fewBytes }: ManyNodes, what: string, { peakBytes }: Pick<PartFigure, "peakBytes">): BenchRow =>
  row(
    `the part: peak of private memory above that with one node, ${what}`,
    "more",
    [peakBytes / 1e6],
    ["with one", [fewBytes / 1e6]],
    { unit: "MB", atMost: 60 },
  );

async function eventRows(nodes: ManyNodes): Promise<readonly BenchRow[]> {
  const { count, request, netns } = nodes;
  const sendEvents = async (last: string, statusOf: (event: number) => object) => {
    await inTurn(EVENTS - 1, (event) => patchStatus(request, event % count, statusOf(event)));
    await (await patchStatus(request, 0, nodeAddress(last).status)).bytes();
  };
  const measureEvents = (last: string, statusOf: (event: number) => object) =>
    measurePart(nodes, () => sendEvents(last, statusOf), () => hasRouteTo(netns, last));
  const unchanged = await measureEvents(LAST[0], newBoot);
  const changed = await measureEvents(LAST[1], (event) => nodeAddress(`198.18.${event >> 8}.${event & 0xff}`).status);
  const time = (what: string, { processorMs }: PartFigure, atMost: number) =>
    row(`the part: processor time of an event that changes ${what}`, "alone", [processorMs / EVENTS], undefined, {
      atMost,
    });
  return [
    time("nothing", unchanged, 0.3),
    time("an address", changed, 2),
  ];
}

/** Half of the nodes are made again, as fast as the API server takes them. */
async function againRows(nodes: ManyNodes): Promise<readonly BenchRow[]> {
  const { count, request, netns, part, routeCount } = nodes;
  const addressOf = (index: number) => `198.19.${index >> 8}.${index & 0xff}`;
  const again = Array.from({ length: Math.floor(count / 2) }, (_, index) => 2 * index);
  const addresses = new Set(again.map(addressOf));
  const half = await measurePart(
    nodes,
    () =>
      inTurn(again.length, async (turn) => {
        const index = again[turn]!;
        await (await request(`${NODES}/node-${index}`, { method: "DELETE" })).bytes();
        return createNode(request, newNode(index, nodeAddress(addressOf(index))));
      }),
    () => {
      const routes = clusterRoutesOf(netns).filter((route) => addresses.has(routeDestination(route)));
      return routes.length === 2 * addresses.size && countRoutes(part) >= routeCount;
    },
  );
  return [
    memoryRow(nodes, "when half of the nodes were made again", half),
    row("the part: from the last of these events to their routes", "alone", [half.ms], undefined, { atMost: 10_000 }),
  ];
}

/** A watch that finds no server is followed by a list. */
function listAgain(nodes: ManyNodes): Promise<PartFigure> {
  const { count, request, netns } = nodes;
  return measurePart(nodes, async () => {
    process.kill(findProcess(API_SERVER), "SIGKILL");
    await untilTrue("The start of the API server", () => request("/readyz").then(() => true, () => false));
    await (await createNode(request, newNode(count, nodeAddress(LAST[2])))).bytes();
  }, () => hasRouteTo(netns, LAST[2]));
}

async function measurePart(
  { part }: ManyNodes,
  change: () => Promise<void>,
  hasFollowed: () => boolean,
): Promise<PartFigure> {
  resetPeak(part);
  const before = processorMsOf(part);
  await change();
  const changedAt = performance.now();
  await untilTrue("What the kernel should have", () => Promise.resolve(hasFollowed()));
  const ms = performance.now() - changedAt;
  await Bun.sleep(SETTLING_MS);
  return { ms, peakBytes: peakPrivateBytes(part), processorMs: processorMsOf(part) - before };
}

async function apiServerRows({ count, request }: ManyNodes): Promise<readonly BenchRow[]> {
  const server = findProcess(API_SERVER);
  await Bun.sleep(QUIET_MS);
  const idle = processorMsOf(server);
  let bytes = 0;
  for (let list = 0; list < LISTS; list++) bytes = (await (await request(`${NODES}?resourceVersion=0`)).bytes()).length;
  const listMs = (processorMsOf(server) - idle) / LISTS;
  const alone = await eventMs(request, server, 1, count);
  const watched = await eventMs(request, server, WATCHES, count);
  return [
    row("size of a list", "alone", [bytes / 1e6], undefined, { unit: "MB" }),
    row("the API server: processor time for a list", "alone", [listMs]),
    row("the API server: processor time for a change of a node", "alone", [alone]),
    row("the same for each watch of nodes", "alone", [1000 * (watched - alone) / (WATCHES - 1)], undefined, {
      unit: "µs",
    }),
    row("the API server: peak of private memory", "alone", [peakPrivateBytes(server) / 1e6], undefined, { unit: "MB" }),
  ];
}

const createNode = (request: Request, node: object): Promise<Response> =>
  request(NODES, { method: "POST", body: JSON.stringify(node) });

const patchStatus = (request: Request, index: number, status: object): Promise<Response> =>
  request(`${NODES}/node-${index}/status`, {
    method: "PATCH",
    headers: { "content-type": "application/merge-patch+json" },
    body: JSON.stringify({ status }),
  });

/** Changes nothing for the network. */
const newBoot = (): object => ({ nodeInfo: { bootID: crypto.randomUUID() } });

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
  await inTurn(WATCHED_EVENTS, (index) => patchStatus(request, index % count, newBoot()));
  await untilTrue("Events", () => Promise.resolve(lines >= WATCHED_EVENTS * watches));
  return (processorMsOf(server) - before) / WATCHED_EVENTS;
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
async function restartPart(former: number, routeCount: number) {
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
  await untilTrue(ALL_ROUTES, () => Promise.resolve(countRoutes(pid) >= routeCount));
  const ms = performance.now() - started;
  // It has the routes from its file; then it reads the list.
  await Bun.sleep(SETTLING_MS);
  return { pid, ms, peakBytes: peakPrivateBytes(pid), processorMs: processorMsOf(pid) };
}

/** Those of IPv4, with their title. */
const countRoutes = (pid: number): number => readProc(pid, "net/route").split("\n").length;

const processes = (comm: string): number[] => allProcesses().filter((pid) => readProc(pid, "comm").startsWith(comm));

function findProcess(comm: string): number {
  const [pid] = processes(comm);
  if (pid === undefined) throw new Error(`No ${comm} runs`);
  return pid;
}
