/** What the forwarder remembers of those who wait. */
import { expect, test } from "bun:test";
import { parseIp } from "../../../ffi/address.ts";
import { openEventPoll } from "../../../ffi/sys/event_poll.ts";
import { type Client, newForwarder } from "./forwarder.ts";
import { type Question, readQuestion } from "./wire.ts";

/** For `a`. */
const QUESTION = readQuestion(Uint8Array.from([0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 97, 0, 0, 1, 0, 1])) as Question;

test("so many wait for one silent resolver, whatever addresses they ask from", async () => {
  using poll = openEventPoll();
  const silent = await Bun.udpSocket({ hostname: "127.0.0.1" });
  const resolvers = [{ address: parseIp("127.0.0.1"), port: silent.port }];
  const forwarder = newForwarder({
    ...{ poll, resolvers: { list: () => resolvers }, isOwn: () => false, count: () => {} },
  });
  const ask = (source: string) => {
    let failed = false;
    const client: Client = { question: QUESTION, source, maxBytes: 512, send: () => void (failed = true) };
    forwarder.ask(client);
    return failed;
  };
  const failuresOf = (source: string) => Array.from({ length: 250 }, () => ask(source)).filter(Boolean).length;
  expect(failuresOf("first")).toBe(50);
  const more = Array.from({ length: 30 }, (_, i) => failuresOf(`${i}`)).reduce((sum, failures) => sum + failures);
  expect(200 + 30 * 250 - more).toBe(4000);
  silent.close();
});
