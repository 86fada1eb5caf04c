/** Containers and resolvers that send anything: the server goes on, and nobody else notices. */
import { expect } from "bun:test";
import fc from "fast-check";
import { parseIp } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import type { Descriptor } from "../../../ffi/sys/file.ts";
import { connectTcp, receiveBytes, sendBytes } from "../../../ffi/sys/inet_socket.ts";
import { sys } from "../../../ffi/sys/libc.ts";
import { awaitReadable, pollFor } from "../../../ffi/sys/poll.ts";
import { POLLOUT, SOL_SOCKET } from "../../../ffi/sys/uapi.ts";
import { runShellInNetns, until } from "../../../testing/netns.ts";
import { digValues, nameServerTest, newNameSite, servedNamesTest, startNameServer } from "../../../testing/dnsname.ts";
import tested from "../plugin.ts";

const PACKETS = 2000;

const inNetns = <T>(netns: Netns, open: () => Promise<T>): Promise<T> => netns.run(() => ({ promise: open() })).promise;

nameServerTest("garbage over UDP and TCP is no trouble for others", async (network) => {
  using site = newNameSite();
  using server = startNameServer(network.host, site.paths);
  const [hostile, other] = [network.container(2), network.container(3)];
  network.call(tested, "ADD", site.config, { container: hostile, containerId: "hostile" });
  network.call(tested, "ADD", site.config, { container: other, containerId: "other" });
  const packets = fc.sample(fc.uint8Array({ minLength: 0, maxLength: 600 }), { numRuns: PACKETS, seed: 1 });
  const socket = await inNetns(hostile.netns, () => Bun.udpSocket({ connect: { hostname: "10.88.0.1", port: 53 } }));
  for (const packet of packets) socket.send(packet.length > 2 ? packet : Uint8Array.of(0, 0, 1));
  socket.close();
  // Questions that never end, lengths that lie, connections that say nothing.
  let closed = 0;
  const connections = await Promise.all(
    packets.slice(0, 60).map((packet, i) =>
      inNetns(hostile.netns, () =>
        Bun.connect({
          hostname: "10.88.0.1",
          port: 53,
          socket: {
            open: (self) => void (i % 3 > 0 && self.write(i % 3 === 1 ? packet : Uint8Array.of(0, 200, ...packet))),
            close: () => void closed++,
            data() {},
            error() {},
          },
        }))
    ),
  );
  expect(digValues(other.netns, "@10.88.0.1", "hostile")).toEqual(["10.88.0.2"]);
  expect(digValues(other.netns, "@10.88.0.1", "+tcp", "hostile", "AAAA")).toEqual(["fd88::2"]);
  // One container may have so many connections, and no more.
  await until(() => closed >= 40);
  for (const connection of connections) connection.terminate();
  expect(server.log()).toBe("");
});

const connectFrom = (netns: Netns): Descriptor => {
  const socket = netns.run(() => connectTcp({ address: parseIp("10.88.0.1"), port: 53 }));
  pollFor(socket.fd, POLLOUT);
  return socket;
};

/** A question for `one`, as over TCP. */
const QUESTION = Uint8Array.from([0, 21, 0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3, 111, 110, 101, 0, 0, 1, 0, 1]);
const LINGER_OPTION = 13;

nameServerTest("a client that resets its connection before the answer is no trouble for others", (network) => {
  using site = newNameSite();
  using server = startNameServer(network.host, site.paths);
  const container = network.container(2);
  network.call(tested, "ADD", site.config, { container, containerId: "one" });
  {
    using socket = connectFrom(container.netns);
    sendBytes(socket.fd, QUESTION);
    expect(awaitReadable(socket.fd, -1) && receiveBytes(socket.fd, new Uint8Array(512))).toBeGreaterThan(2);
    // Question and reset are there before the server looks.
    process.kill(server.pid, "SIGSTOP");
    sendBytes(socket.fd, QUESTION);
    sys.setsockopt(socket.fd, SOL_SOCKET, LINGER_OPTION, new Int32Array([1, 0]), 8);
  }
  process.kill(server.pid, "SIGCONT");
  expect(digValues(container.netns, "@10.88.0.1", "one")).toEqual(["10.88.0.2"]);
});

servedNamesTest("a container with many addresses does not keep others from TCP", (network, site) => {
  const [hostile, other] = [network.container(2), network.container(3)];
  network.call(tested, "ADD", site.config, { container: other, containerId: "one" });
  const others = Array.from({ length: 10 }, (_, i) => `10.88.9.${i + 1}`);
  for (const address of others) runShellInNetns(hostile.netns, `ip addr add ${address}/16 dev eth0`);
  using connections = new DisposableStack();
  for (const address of others) {
    runShellInNetns(hostile.netns, `ip route replace 10.88.0.1/32 dev eth0 src ${address}`);
    for (let i = 0; i < 20; i++) connections.use(connectFrom(hostile.netns));
  }
  expect(digValues(other.netns, "@10.88.0.1", "+tcp", "one")).toEqual(["10.88.0.3"]);
});

nameServerTest("a resolver that answers wrongly, and others in its name, are not believed", async (network) => {
  using site = newNameSite("nameserver 192.0.2.2\n");
  using server = startNameServer(network.host, site.paths);
  const container = network.container(2);
  network.call(tested, "ADD", site.config, { container, containerId: "one" });
  const answerTo = (query: Uint8Array, value: number): Uint8Array => {
    const questionEnd = query.indexOf(0, 12) + 5;
    const answer = Uint8Array.from([
      ...query.subarray(0, questionEnd),
      ...[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 198, 51, 100, value],
    ]);
    answer.set([0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0], 2);
    return answer;
  };
  const liars: ((query: Uint8Array) => Uint8Array)[] = [
    // Another id, another name, a question, pieces, and garbage.
    (query) => answerTo(query, 66).map((byte, i) => i === 0 ? byte ^ 1 : byte),
    (query) => answerTo(query, 66).map((byte, i) => i === 14 ? byte ^ 1 : byte),
    (query) => query,
    (query) => answerTo(query, 66).subarray(0, 13),
    () => Uint8Array.from({ length: 500 }, (_, i) => i),
  ];
  using _other = {
    socket: await inNetns(network.outside, () => Bun.udpSocket({ hostname: "0.0.0.0", socket: { error() {} } })),
    [Symbol.dispose]() {
      this.socket.close();
    },
  };
  const resolver = await inNetns(network.outside, () =>
    Bun.udpSocket({
      hostname: "192.0.2.2",
      port: 53,
      socket: {
        // What comes after the right answer finds nobody.
        error() {},
        data(self, query, port, address) {
          // From another port, all is right but that.
          _other.socket.send(answerTo(query, 67), port, address);
          for (const lie of liars) self.send(lie(query), port, address);
          self.send(answerTo(query, 7), port, address);
        },
      },
    }));
  for (let i = 0; i < 20; i++) {
    const child = container.netns.run(() => ({
      process: Bun.spawn(["dig", "+short", "@10.88.0.1", `name${i}.example.test`], { stdin: "ignore" }),
    })).process;
    expect(await new Response(child.stdout).text()).toBe("198.51.100.7\n");
  }
  resolver.close();
  expect(server.log()).toBe("");
});
