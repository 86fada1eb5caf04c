/** The part of the server that follows the nodes of a cluster: with three nodes, and with thousands. @module */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ROUTE_PROTOCOL, TUNNEL_LINK } from "../../../cluster/network/settings.ts";
import { createNetns, type Netns } from "../../../ffi/netns/netns.ts";
import { ApiServer } from "../../../testing/api_server.ts";
import { newNode, nodeAddress } from "../../../testing/cluster_nodes.ts";
import { runShellInNetns, until, WITHOUT_DAD } from "../../../testing/netns.ts";
import { clusterRoutesOf, hasRouteTo, routeDestination } from "../../../testing/cluster_routes.ts";
import { CNI_PROGRAM, newScratchDirectory } from "../repository.ts";
import { peakPrivateBytes, processorMsOf, resetPeak } from "../harness/process_cost.ts";
import { type BenchRow, formatNumber, row } from "./table.ts";
import type { BenchWorkspace } from "./workspace.ts";

const OWN = 1;
const TOKEN = "the-token";
const ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount";
/** Nobody listens there, as when the API server is away. */
const AWAY = "https://127.0.0.1:1";
/** The part stores nodes after three seconds, and collects garbage until then. */
const SETTLING_MS = 6000;

/** Of a part, by what happened: peak private memory, processor time, the time until the kernel had it. */
interface Figure {
  readonly megabytes: number;
  readonly processorMs: number;
  readonly ms: number;
}

type Figures = Readonly<Record<"start" | "relist" | "flush" | "unchanged" | "changed" | "half" | "stored", Figure>>;

export async function clusterRows(bench: BenchWorkspace): Promise<readonly BenchRow[]> {
  const [few, many] = [3, bench.quick ? 50 : 5000];
  const eventCount = bench.quick ? 100 : 2000;
  const small = await measureCluster(bench, few, eventCount);
  const large = await measureCluster(bench, many, eventCount);
  const nodes = `${many.toLocaleString("en")} nodes`;
  const memory = (what: string, name: keyof Figures) =>
    row(
      `Peak private memory of the part \`cluster\` with ${nodes}, ${what}`,
      "more",
      [large[name].megabytes],
      [`with ${few}`, [small[name].megabytes]],
      { unit: "MB", atMost: 60, note: `${formatNumber(large[name].processorMs)} ms of the processor` },
    );
  const time = (what: string, ms: number, atMost: number) => row(what, "alone", [ms], undefined, { atMost });
  return [
    memory("at its start", "start"),
    memory("at a list of all", "relist"),
    memory("when all routes were removed", "flush"),
    memory("at events that change nothing", "unchanged"),
    memory("at events that change an address", "changed"),
    memory("when half of them were made again", "half"),
    memory("at its start with stored nodes only", "stored"),
    time(`From the start of the server to the routes to ${nodes}`, large.start.ms, 5000),
    time(`From the start without the API server to the routes to ${nodes}, which were stored`, large.stored.ms, 5000),
    time(`From the removal of the routes to ${nodes} until they are back`, large.flush.ms, 5000),
    time("Processor time of an event that changes nothing", large.unchanged.processorMs / eventCount, 0.3),
    time("Processor time of an event that changes an address", large.changed.processorMs / eventCount, 2),
    time(`From the last event of half of ${nodes} made again to their routes`, large.half.ms, 10_000),
  ];
}

async function measureCluster(bench: BenchWorkspace, count: number, eventCount: number): Promise<Figures> {
  using scope = new DisposableStack();
  const directory = scope.use(newScratchDirectory(bench.state)).path;
  const host = scope.use(newHost());
  const objects = Array.from({ length: count }, (_, index) => newNode(index));
  const api = scope.use(new ApiServer(host, { address: "127.0.0.1", directory, token: TOKEN, objects }));
  writeFileSync(join(directory, "token"), TOKEN);
  // Those to this node's own ranges, too.
  const hasAll = () => clusterRoutesOf(host).length === 2 * count;
  installServer(directory);
  let server: RunningServer;
  let pid = 0;
  const ended = async (ms: number, processorMs = 0): Promise<Figure> => {
    await Bun.sleep(SETTLING_MS);
    return { ms, megabytes: peakPrivateBytes(pid) / 1e6, processorMs: processorMsOf(pid) - processorMs };
  };
  const measureStart = async (apiServer: string): Promise<Figure> => {
    const since = performance.now();
    server = startServer(scope, host, directory, apiServer);
    await until(hasAll);
    const ms = performance.now() - since;
    pid = await server.part();
    return await ended(ms);
  };
  const measure = async (change: () => unknown, happened: () => boolean): Promise<Figure> => {
    resetPeak(pid);
    const before = processorMsOf(pid);
    await change();
    const changedAt = performance.now();
    await until(happened);
    return await ended(performance.now() - changedAt, before);
  };
  const start = await measureStart(api.url);
  const requestCount = api.requests.length;
  const relist = await measure(() => {
    api.compact();
    api.sendError(410, "Expired");
  }, () => api.requests.length > requestCount + 1 && api.watchCount === 1);
  const flush = await measure(
    () => runShellInNetns(host, ...["-4", "-6"].map((family) => `ip ${family} route flush proto ${ROUTE_PROTOCOL}`)),
    hasAll,
  );
  // Of the last node, so that the events before it are done when its routes are.
  const last = `192.0.2.${eventCount % 2}`;
  const sendEvents = async (changes: (event: number) => Parameters<typeof newNode>[1]) => {
    for (let event = 1; event <= eventCount; event++) {
      const isLast = event === eventCount;
      api.put(newNode(isLast ? 0 : 2 + event % (count - 2), isLast ? nodeAddress(last) : changes(event)));
      if (event % 20 === 0) await Bun.sleep(1);
    }
  };
  const unchanged = await measure(
    () => sendEvents(() => ({})),
    () => hasRouteTo(host, last),
  );
  api.put(newNode(0));
  await until(() => !hasRouteTo(host, last));
  const changed = await measure(
    () => sendEvents((event) => nodeAddress(`198.18.${event >> 8}.${event & 255}`)),
    () => hasRouteTo(host, last),
  );
  const others = Array.from({ length: count }, (_, index) => index).filter((index) => index % 2 === 0);
  const addressAgain = (index: number) => `198.19.${index >> 8}.${index & 255}`;
  const again = new Set(others.map(addressAgain));
  const half = await measure(
    async () => {
      for (const [i, index] of others.entries()) {
        api.remove("Node", `node-${index}`);
        api.put(newNode(index, nodeAddress(addressAgain(index))));
        if (i % 20 === 0) await Bun.sleep(1);
      }
    },
    () =>
      clusterRoutesOf(host).filter((route) => again.has(routeDestination(route))).length === 2 * again.size && hasAll(),
  );
  await server!.end();
  runShellInNetns(
    host,
    // The kernel keeps none of this over a boot.
    `for f in -4 -6; do ip $f route flush proto ${ROUTE_PROTOCOL}; done; ip link del ${TUNNEL_LINK}`,
    "nft flush ruleset",
  );
  const stored = await measureStart(AWAY);
  return { start, relist, flush, unchanged, changed, half, stored };
}

/** Some nodes are on its link; the others are behind the tunnel. */
function newHost(): Netns {
  using building = new DisposableStack();
  const host = building.use(createNetns());
  runShellInNetns(
    host,
    WITHOUT_DAD,
    "ip link set lo up; ip link add eth0 type veth peer name far; ip link set far up; ip link set eth0 up",
    "ip addr add 172.16.0.1/21 dev eth0; ip route add default via 172.16.0.2",
    "ip addr add 2001:db8::1/117 dev eth0 nodad; ip route add default via 2001:db8::2",
  );
  building.move();
  return host;
}

function installServer(directory: string): void {
  const plugins = join(directory, "bin");
  mkdirSync(plugins);
  Bun.spawnSync([CNI_PROGRAM, "install", plugins]);
  const network = { cniVersion: "1.0.0", name: "pods", plugins: [{ type: "ptp", ipam: { type: "host-local" } }] };
  writeFileSync(join(directory, "10-pods.conflist"), JSON.stringify(network));
}

interface RunningServer {
  /** @returns the process of the part `cluster` */
  part(): Promise<number>;
  end(): Promise<unknown>;
}

/** As in a pod of Kubernetes, whose mounts are not those of process 1. */
function startServer(scope: DisposableStack, host: Netns, directory: string, apiServer: string): RunningServer {
  const path = (name: string) => join(directory, name);
  const plugins = path("bin");
  const socket = path("run/cni.sock");
  const options = {
    socket,
    cluster: "network",
    node: `node-${OWN}`,
    "api-server": apiServer,
    conflist: path("10-pods.conflist"),
    "plugin-dir": plugins,
    "conf-dir": path("net.d"),
    "cache-dir": path("cache"),
    workers: "2",
  };
  const words = Object.entries(options).flatMap(([name, value]) => [`--${name}`, value]);
  const script = `mount -t tmpfs none /run; mkdir -p ${ACCOUNT}; cp ${path("token")} ${path("ca.crt")} ${ACCOUNT}
    exec setpriv --pdeathsig TERM ${plugins}/cni-full serve --no-restore "$@" >${path("log")} 2>&1`;
  const { child } = host.run(() => ({
    child: Bun.spawn(["unshare", "-m", "sh", "-ec", script, "sh", ...words], { stdin: "ignore" }),
  }));
  scope.defer(() => child.kill("SIGTERM"));
  return {
    async part(): Promise<number> {
      const status = Bun.spawn([CNI_PROGRAM, "serve", "--socket", socket, "--status", "--json"]);
      const { parts } = JSON.parse(await new Response(status.stdout).text()) as {
        readonly parts: readonly { readonly name: string; readonly pid?: number }[];
      };
      return parts.find(({ name }) => name === "cluster")!.pid!;
    },
    end() {
      child.kill("SIGTERM");
      return child.exited;
    },
  };
}
