/** A container with raw sockets asks in the name of others, 1,500 questions a second: who else asks gets answers. */
import { expect } from "bun:test";
import { join } from "node:path";
import { parseCidr } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import * as link from "../../../ffi/route/link.ts";
import type { BridgeContainer, BridgeNetwork } from "../../../testing/bridge_network.ts";
import { nameServerTest, type NameSite, newNameSite, startNameServer } from "../../../testing/dnsname.ts";
import { newNetns, runShellInNetns, WITHOUT_DAD } from "../../../testing/netns.ts";
import tested from "../plugin.ts";

const FLOODER = join(import.meta.dir, "../../../testing/forged_questions.ts");
const QUESTIONS = 10;

/** A container of another network, on a bridge of its own. */
function addOtherNetwork({ host, call }: BridgeNetwork, site: NameSite, resources: DisposableStack): Netns {
  const netns = resources.use(newNetns());
  runShellInNetns(netns, WITHOUT_DAD);
  runShellInNetns(
    host,
    "ip link add br1 type bridge; ip addr add 10.89.0.1/16 dev br1; ip link set br1 up",
    `ip link add other0 master br1 up type veth peer name eth0 netns ${netns.path}`,
  );
  runShellInNetns(netns, "ip addr add 10.89.0.2/16 dev eth0; ip link set eth0 up");
  const address = parseCidr("10.89.0.2/16");
  const interfaces = [{ name: "br1" }, { name: "eth0", sandbox: netns.path }];
  const result = { interfaces, ips: [{ address, interface: 1 }] };
  const container = { netns, result } as unknown as BridgeContainer;
  call(tested, "ADD", { ...site.config, name: "other" }, { container, containerId: "far" });
  return netns;
}

/** Answers names below `example.test`, and is silent about others. */
async function startResolver(netns: Netns): Promise<Disposable> {
  const answer = (query: Uint8Array): Uint8Array => {
    const questionEnd = query.indexOf(0, 12) + 5;
    const bytes = Uint8Array.from([
      ...query.subarray(0, questionEnd),
      ...[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 198, 51, 100, 7],
    ]);
    bytes.set([0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0], 2);
    return bytes;
  };
  const { pending } = netns.run(() => ({
    pending: Bun.udpSocket({
      hostname: "192.0.2.2",
      port: 53,
      socket: {
        // Who gave up is not there to take it.
        error() {},
        data(self, query, port, address) {
          if (query.includes("example")) self.send(answer(query), port, address);
        },
      },
    }),
  }));
  const socket = await pending;
  return { [Symbol.dispose]: () => socket.close() };
}

async function flood(
  { host }: BridgeNetwork,
  { netns }: BridgeContainer,
  sources: readonly string[],
): Promise<Disposable> {
  const { mac } = link.get(host.route, "br0");
  const flooder = netns.run(() => ({
    process: Bun.spawn([process.execPath, FLOODER, mac!, ...sources], { stdin: "ignore", stdout: "pipe" }),
  })).process;
  const { value } = await flooder.stdout.getReader().read();
  expect(new TextDecoder().decode(value)).toBe("flooding\n");
  return { [Symbol.dispose]: () => flooder.kill("SIGKILL") };
}

let asked = 0;

/** The answers to questions for the own name and for other names, over UDP and TCP. */
async function ask(netns: Netns, server: string, ownName: string): Promise<string[]> {
  const answers: string[] = [];
  for (let i = 0; i < QUESTIONS; i++) {
    const name = i % 2 === 0 ? ownName : `n${asked++}.example.test`;
    const options = ["+short", "+tries=1", "+timeout=10", ...i % 4 < 2 ? [] : ["+tcp"]];
    const child = netns.run(() => ({
      process: Bun.spawn(["dig", ...options, `@${server}`, name], { stdin: "ignore" }),
    })).process;
    answers.push((await new Response(child.stdout).text()).trim());
  }
  return answers;
}

const expected = (ownAddress: string): string[] =>
  Array.from({ length: QUESTIONS }, (_, i) => i % 2 === 0 ? ownAddress : "198.51.100.7");

/** @param addresses of containers besides the one that asks, whose address is forged as well if there are any */
function forgedTest(name: string, sources: readonly string[], addresses: readonly string[] = []): void {
  nameServerTest(name, async (network) => {
    using resources = new DisposableStack();
    using site = newNameSite("nameserver 192.0.2.2\n");
    using _resolver = await startResolver(network.outside);
    using server = startNameServer(network.host, site.paths);
    const [hostile, near] = [network.container(2), network.container(3)];
    network.call(tested, "ADD", site.config, { container: hostile, containerId: "hostile" });
    network.call(tested, "ADD", site.config, { container: near, containerId: "near" });
    for (const address of addresses) {
      const prevResult = { ...near.result, ips: [{ address: parseCidr(`${address}/16`), interface: 2 }] };
      network.call(tested, "ADD", site.config, { container: near, containerId: `c${address}`, prevResult });
    }
    const far = addOtherNetwork(network, site, resources);
    using _flood = await flood(network, hostile, sources);
    const [ofNear, ofFar] = await Promise.all([ask(near.netns, "10.88.0.1", "near"), ask(far, "10.89.0.1", "far")]);
    expect(ofFar).toEqual(expected("10.89.0.2"));
    expect(ofNear).toEqual(expected("10.88.0.3"));
    expect(server.log()).toBe("");
  });
}

const twenty = (prefix: string): string[] => Array.from({ length: 20 }, (_, i) => `${prefix}.${i + 1}`);

forgedTest("in the name of addresses that no container has", twenty("10.88.9"));
forgedTest(
  "in the name of containers, also of the one that asks",
  ["10.88.0.3", ...twenty("10.88.9")],
  twenty("10.88.9"),
);
forgedTest("in the name of containers of another network, and of nobody", ["10.89.0.2", ...twenty("203.0.113")]);
