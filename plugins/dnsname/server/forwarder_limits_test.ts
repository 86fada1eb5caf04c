/** What the forwarder remembers of those who wait. */
import { expect, test } from "bun:test";
import { parseIp } from "../../../ffi/address.ts";
import { openEventPoll } from "../../../ffi/sys/event_poll.ts";
import { until } from "../../../testing/netns.ts";
import { type Client, Forwarder } from "./forwarder.ts";
import { type Question, readQuestion } from "./wire.ts";

/** For a name of one letter. */
const questionFor = (letter: number): Question =>
  readQuestion(Uint8Array.from([0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, letter, 0, 0, 1, 0, 1])) as Question;
const [SHARED, OWN] = [97, 98].map(questionFor) as [Question, Question];

test("so many wait for a silent resolver, and questions that nobody waits for are forgotten", async () => {
  using poll = openEventPoll();
  const queries: number[] = [];
  const silent = await Bun.udpSocket({
    hostname: "127.0.0.1",
    socket: { data: (_, query) => void queries.push(query[13]!) },
  });
  const resolvers = [{ address: parseIp("127.0.0.1"), port: silent.port }];
  const forwarder = new Forwarder({ poll, resolvers: { list: () => resolvers }, isOwn: () => false, count: () => {} });
  let failures = 0;
  const ask = (n: number, { question = SHARED, isContainer = true } = {}) => {
    const source = parseIp(`10.88.${n >> 8}.${n & 255}`);
    const send = () => void failures++;
    const client: Client = { question, link: "br0", source, isContainer, maxBytes: 512, send };
    forwarder.ask(client);
  };
  /** How many more failed. */
  const failuresOf = (count: number, askOne: (i: number) => void) => {
    const before = failures;
    for (let i = 0; i < count; i++) askOne(i);
    return failures - before;
  };
  expect(failuresOf(250, () => ask(1))).toBe(50);
  expect(failuresOf(250, (i) => ask(1000 + i, { isContainer: false }))).toBe(200);
  expect(failuresOf(2000, (i) => ask(2 + i % 10))).toBe(250);
  // All who wait for it give way: then it is asked anew.
  ask(20, { question: OWN });
  failuresOf(200, () => ask(20));
  ask(21, { question: OWN });
  await until(() => queries.length === 3);
  expect(queries).toEqual([97, 98, 98]);
  silent.close();
});
