import { expect, test } from "bun:test";
import { parseIp } from "../../../ffi/address.ts";
import { createNetns } from "../../../ffi/netns/netns.ts";
import { openEventPoll } from "../../../ffi/sys/event_poll.ts";
import { connectTcp, listenTcp, sendBytes } from "../../../ffi/sys/inet_socket.ts";
import { pollFor } from "../../../ffi/sys/poll.ts";
import { POLLOUT } from "../../../ffi/sys/uapi.ts";
import { forbidDescriptors } from "../../../testing/descriptor_limit.ts";
import { runShellInNetns, until } from "../../../testing/netns.ts";
import { Acceptor } from "./acceptor.ts";
import { Connections } from "./connections.ts";

test("without a free descriptor, a connection waits, and nothing wakes the server meanwhile", async () => {
  using resources = new DisposableStack();
  const host = resources.use(createNetns());
  runShellInNetns(host, "ip link set lo up");
  const address = parseIp("127.0.0.1");
  const listener = resources.use(host.run(() => listenTcp({ address, port: 53, device: "lo" })));
  const poll = resources.use(openEventPoll());
  const log: string[] = [];
  const acceptor = new Acceptor(poll, (message) => log.push(message));
  const connections = new Connections(poll, acceptor);
  const questions: string[] = [];
  resources.use(connections.serve(listener, {
    link: "lo",
    isContainer: () => true,
    onQuestion: (message) => questions.push(message.join()) > 0,
  }));
  const client = resources.use(host.run(() => connectTcp({ address, port: 53 })));
  pollFor(client.fd, POLLOUT);
  sendBytes(client.fd, Uint8Array.of(0, 2, 7, 9));

  expect(acceptor.deadline()).toBe(Infinity);
  {
    using _ = forbidDescriptors();
    poll.wait(-1);
    expect(acceptor.deadline()).toBeLessThan(Infinity);
    const before = performance.now();
    poll.wait(100);
    expect(performance.now() - before).toBeGreaterThan(90);
  }
  await until(() => {
    acceptor.expire();
    poll.wait(10);
    return questions.length > 0;
  });
  expect(questions).toEqual(["7,9"]);
  expect(log).toEqual([expect.stringMatching(/^Takes no connections until that is mended: .*EMFILE/)]);
});
