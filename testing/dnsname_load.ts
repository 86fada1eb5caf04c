/**
 * A network with many names, and a container that asks for them without a pause.
 *
 * @module
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Cidr, parseCidr, parseIp } from "../ffi/address.ts";
import tested from "../plugins/dnsname/plugin.ts";
import { newRecord, recordFileName } from "../plugins/dnsname/record.ts";
import { newBridgeNetwork } from "./bridge_network.ts";
import { newNameSite, startNameServer } from "./dnsname.ts";

/** How much. */
export interface NameLoad {
  /** Of other containers. */
  readonly names: number;
  readonly questions: number;
  /** ADDs and DELs of one more container. */
  readonly attachments: number;
}

/** What it took. */
export interface NameLoadResult {
  /** From the start of the server to its first answer. */
  readonly startMs: number;
  /** Of each ADD. */
  readonly addMs: readonly number[];
  readonly answered: number;
  readonly seconds: number;
}

/** As many questions are on their way at a time: fewer than a socket's buffer takes. */
const WINDOW = 64;
/** Then, the missing answers are lost. */
const PATIENCE_MS = 20_000;

/** Attaches, asks, and detaches again. */
export async function runNameLoad({ names, questions, attachments }: NameLoad): Promise<NameLoadResult> {
  using resources = new DisposableStack();
  const network = newBridgeNetwork(resources);
  const { host } = network;
  using site = newNameSite();
  mkdirSync(site.paths.state);
  const servers = ["10.88.0.1", "fd88::1"].map((address) => ({ address: parseIp(address), device: "br0" }));
  for (let i = 0; i < names; i++) {
    const owner = { network: "web", containerId: `id${i}`, ifname: "eth0" };
    const addresses = [parseCidr(`10.88.${i >> 8 | 64}.${i & 255}/16`)] as Cidr[];
    const record = newRecord(host, { owner, domain: "dns.test", names: [`name${i}`], addresses, servers });
    writeFileSync(join(site.paths.state, recordFileName(owner)), JSON.stringify(record));
  }
  const start = performance.now();
  resources.use(startNameServer(host, site.paths));
  const startMs = performance.now() - start;
  const container = network.container(2);
  const addMs = Array.from({ length: attachments }, () => {
    const before = performance.now();
    network.call(tested, "ADD", site.config, { container, containerId: "more" });
    const duration = performance.now() - before;
    network.call(tested, "DEL", site.config, { container, containerId: "more" });
    return duration;
  });
  network.call(tested, "ADD", site.config, { container, containerId: "more" });
  const asked = performance.now();
  const answered = await askWithoutPause(() => container.netns, questions, names);
  return { startMs, addMs, answered, seconds: (performance.now() - asked) / 1000 };
}

/** @returns how many questions were answered with an address */
async function askWithoutPause(
  netnsOf: () => { run<T>(call: () => T): T },
  questions: number,
  names: number,
): Promise<number> {
  const done = Promise.withResolvers<void>();
  const isAnswered = new Uint8Array(questions);
  let [sent, received] = [0, 0];
  let send = (_question: Uint8Array) => {};
  const { pending } = netnsOf().run(() => ({
    pending: Bun.udpSocket({
      connect: { hostname: "10.88.0.1", port: 53 },
      socket: {
        error() {},
        data(_, answer) {
          // The id has 16 bits only: the round is the one that is under way.
          const id = answer[0]! << 8 | answer[1]!;
          const round = Math.floor((sent - 1) / 65_536) * 65_536;
          const index = round + id < sent ? round + id : round + id - 65_536;
          if (answer[7] === 1 && isAnswered[index] === 0) isAnswered[index] = 1;
          if (++received === questions) done.resolve();
          if (sent < questions) send(questionFor(sent % names, sent++ & 0xffff));
        },
      },
    }),
  }));
  const socket = await pending;
  send = (question) => void socket.send(question);
  while (sent < Math.min(WINDOW, questions)) send(questionFor(sent % names, sent++ & 0xffff));
  await Promise.race([done.promise, Bun.sleep(PATIENCE_MS)]);
  socket.close();
  return isAnswered.reduce((sum, each) => sum + each, 0);
}

function questionFor(index: number, id: number): Uint8Array {
  const labels = [`name${index}`, "dns", "test"].map((label) => Buffer.from(label));
  const name = labels.flatMap((label) => [label.length, ...label]);
  return Uint8Array.from([id >> 8, id & 255, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, ...name, 0, 0, 1, 0, 1]);
}
