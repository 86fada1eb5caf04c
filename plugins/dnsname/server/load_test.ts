/** A sample of `scripts/names`. */
import { expect } from "bun:test";
import { testWith } from "../../../testing/binary.ts";
import { runForwardLoad } from "../../../testing/dnsname_forward_load.ts";
import { runNameLoad } from "../../../testing/dnsname_load.ts";

testWith(["ip"], "no question is lost among many names", async () => {
  const { answered } = await runNameLoad({ names: 300, questions: 3000, attachments: 1 });
  expect(answered).toBe(3000);
});

testWith(["ip"], "no question for names of others is lost, kept or not", async () => {
  for (const ttl of [0, 60]) {
    const { answered } = await runForwardLoad({ questions: 500, window: 64, delayMs: 1, ttl });
    expect(answered).toBe(500);
  }
});
