/** Policies for tests, and packets that try them. @module */
import type { Netns } from "../ffi/netns/netns.ts";
import type { DesiredPolicy, PeerSet, PolicedPod, PolicyChain, PolicyChange } from "../plugins/lib/policy/desired.ts";
import type { PolicyPod } from "./policy_site.ts";
import { NO_ANSWER_TIMEOUT_MS, openInNetns, requestTcp, requestUdp, serveTcp, serveUdp } from "./traffic.ts";

/** A chain without rules isolates. */
export const newPolicyChain = (
  key: string,
  direction: "ingress" | "egress",
  rules: PolicyChain["rules"] = [],
): PolicyChain => ({
  key,
  direction,
  rules,
});

/** What is to be in the kernel. */
export function newDesired(
  pods: readonly PolicedPod[],
  chains: readonly PolicyChain[] = [],
  sets: Readonly<Record<string, PeerSet>> = {},
): DesiredPolicy {
  return { pods, chains: new Map(chains.map((each) => [each.key, each])), sets: new Map(Object.entries(sets)) };
}

/** A change of nothing but what is given. */
export const newChange = (parts: Partial<PolicyChange>): PolicyChange => ({
  setsAdded: new Map(),
  setsRemoved: [],
  elements: [],
  chainsAdded: [],
  chainsRemoved: [],
  pods: [],
  ...parts,
});

/** A pod of the node. */
export const newPoliced = ({ n, ips }: PolicyPod, keys: { ingress?: string; egress?: string } = {}): PolicedPod => ({
  owner: `web/p${n} uid`,
  ips,
  ...keys,
});

/** Which families of a pod answer: `46`, `4`, `6` or `-`. */
export interface Reach {
  readonly tcp: string;
  readonly udp: string;
}

/** Whether each address of a pod answers on both protocols: `46`, `4`, `6` or `-`. */
export async function reach(from: Netns, to: PolicyPod, port = 80): Promise<Reach> {
  const patience = NO_ANSWER_TIMEOUT_MS;
  const ask = async (request: typeof requestUdp) => {
    const answers = await Promise.all(to.ips.map((ip) => request(from, ip, port, patience)));
    return answers.map((answer, i) => (answer === undefined ? "" : i === 0 ? "4" : "6")).join("") || "-";
  };
  const [tcp, udp] = await Promise.all([ask(requestTcp), ask(requestUdp)]);
  return { tcp, udp };
}

export const ALL_REACHED: Reach = { tcp: "46", udp: "46" };
export const NONE_REACHED: Reach = { tcp: "-", udp: "-" };

/** Answers on TCP and UDP. */
export async function servePod(resources: DisposableStack, pod: PolicyPod, port = 80): Promise<void> {
  resources.use(serveTcp(pod.netns, `p${pod.n}`, port));
  resources.use(await serveUdp(pod.netns, `p${pod.n}`, port));
}

/** Both sides send all the time, whether or not they hear anything. */
export interface Talk {
  /** How often the caller has heard the other side. */
  heard(): number;
}

const EACH_MS = 10;
const TALK_PORT = 7000;

/** Talks over UDP, from the same ports all the time. */
export async function talkUdp(resources: DisposableStack, from: Netns, to: PolicyPod, ip: string): Promise<Talk> {
  let heard = 0;
  let peer: { port: number; address: string } | undefined;
  const hostname = ip.includes(":") ? "::" : "0.0.0.0";
  const server = await openInNetns(to.netns, () =>
    Bun.udpSocket({
      hostname: ip,
      port: TALK_PORT,
      socket: { error() {}, data: (_, _data, port, address) => void (peer = { port, address }) },
    }));
  resources.defer(() => server.close());
  const client = await openInNetns(
    from,
    () => Bun.udpSocket({ hostname, socket: { error() {}, data: () => void heard++ } }),
  );
  resources.defer(() => client.close());
  const timer = setInterval(() => {
    client.send("x", TALK_PORT, ip);
    if (peer) server.send("y", peer.port, peer.address);
  }, EACH_MS);
  resources.defer(() => clearInterval(timer));
  return { heard: () => heard };
}

/** Talks over one TCP connection. */
export async function talkTcp(resources: DisposableStack, from: Netns, to: PolicyPod, ip: string): Promise<Talk> {
  let heard = 0;
  let timer: Timer | undefined;
  const write = (socket: { write(text: string): number }) => void socket.write("x");
  const listener = to.netns.run(() =>
    Bun.listen({
      hostname: ip,
      port: TALK_PORT,
      socket: { open: (socket) => void (timer = setInterval(() => write(socket), EACH_MS)), data() {}, error() {} },
    })
  );
  resources.defer(() => listener.stop(true));
  const client = await openInNetns(
    from,
    () => Bun.connect({ hostname: ip, port: TALK_PORT, socket: { data: () => void heard++, error() {} } }),
  );
  const clientTimer = setInterval(() => write(client), EACH_MS);
  resources.defer(() => {
    clearInterval(timer);
    clearInterval(clientTimer);
    client.terminate();
  });
  return { heard: () => heard };
}

const LONG_ENOUGH_MS = 300;

/** Whether anything comes from now on. */
export async function isHeard(talk: Talk, patienceMs: number = LONG_ENOUGH_MS): Promise<boolean> {
  // What was under way has come by then.
  await Bun.sleep(LONG_ENOUGH_MS / 3);
  const before = talk.heard();
  await Bun.sleep(patienceMs);
  return talk.heard() > before;
}

/** Sends one packet, and waits until it has passed or not. */
export async function sendFrom(netns: Netns, source: string, to: string): Promise<void> {
  const socket = await openInNetns(netns, () => Bun.udpSocket({ hostname: source, socket: { error() {} } }));
  socket.send("x", 9, to);
  await Bun.sleep(EACH_MS * 2);
  socket.close();
}
