/**
 * Questions for names of others, asked of a server of names whose resolver takes its time.
 *
 * @module
 */
import { readFileSync } from "node:fs";
import type { Netns } from "../ffi/netns/netns.ts";
import tested from "../plugins/dnsname/plugin.ts";
import { newBridgeNetwork } from "./bridge_network.ts";
import { askWithoutPause } from "./dns_questions.ts";
import { newNameSite, startNameServer } from "./dnsname.ts";

/** What is asked, and of whom. */
export interface ForwardLoad {
  readonly questions: number;
  /** So many at a time. */
  readonly window: number;
  /** The time that the resolver takes. */
  readonly delayMs: number;
  /** That of the resolver's answers. With 0, the server asks the resolver each time. */
  readonly ttl: number;
}

export interface ForwardResult {
  readonly answered: number;
  readonly seconds: number;
  /** The time of each question. */
  readonly latencyMs: readonly number[];
  /** The processor time of the server, user and system, in seconds. */
  readonly serverSeconds: number;
}

/** More than are asked at a time, so that no two equal questions wait together. */
const NAMES = Array.from({ length: 100 }, (_, i) => `name${i}.example.test`);
/** USER_HZ, which is the same on all processors we build for. */
const TICKS_PER_SECOND = 100;

/** Answers each question with an address. */
const resolverScript = (delayMs: number, ttl: number): string =>
  `const answerTo = (query) => {
    const answer = new Uint8Array([...query.subarray(0, query.indexOf(0, 12) + 5),
      0xc0, 12, 0, 1, 0, 1, 0, 0, 0, ${ttl}, 0, 4, 198, 51, 100, 7]);
    answer.set([0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0], 2);
    return answer;
  };
  const answerNow = (self, query, port, address) => self.send(answerTo(query), port, address);
  await Bun.udpSocket({ hostname: "192.0.2.2", port: 53, socket: {
    error() {},
    data: ${delayMs} === 0 ? answerNow : (self, query, port, address) => {
      const copy = query.slice();
      setTimeout(() => answerNow(self, copy, port, address), ${delayMs});
    },
  } });
  console.log("ready");`;

async function startResolver(netns: Netns, delayMs: number, ttl: number): Promise<Disposable> {
  const child = netns.run(() => ({
    process: Bun.spawn([process.execPath, "-e", resolverScript(delayMs, ttl)], { stdin: "ignore", stdout: "pipe" }),
  })).process;
  await child.stdout.getReader().read();
  return { [Symbol.dispose]: () => child.kill("SIGKILL") };
}

/** Asks each name once, then measures. */
export async function runForwardLoad({ questions, window, delayMs, ttl }: ForwardLoad): Promise<ForwardResult> {
  using resources = new DisposableStack();
  const network = newBridgeNetwork(resources);
  using site = newNameSite("nameserver 192.0.2.2\n");
  using _resolver = await startResolver(network.outside, delayMs, ttl);
  using server = startNameServer(network.host, site.paths);
  const container = network.container(2);
  network.call(tested, "ADD", site.config, { container, containerId: "one" });
  await askWithoutPause(container.netns, { count: NAMES.length, window: 1, names: NAMES });
  const before = processorSeconds(server.pid);
  const start = performance.now();
  const latencyMs = await askWithoutPause(container.netns, { count: questions, window, names: NAMES });
  const seconds = (performance.now() - start) / 1000;
  return { answered: latencyMs.length, seconds, latencyMs, serverSeconds: processorSeconds(server.pid) - before };
}

/** @see proc_pid_stat(5) */
function processorSeconds(pid: number): number {
  const words = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]!.split(" ");
  return (Number(words[11]) + Number(words[12])) / TICKS_PER_SECOND;
}
