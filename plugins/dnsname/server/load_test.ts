/** A sample of `scripts/names`. */
import { expect } from "bun:test";
import { testWith } from "../../../testing/binary.ts";
import { runNameLoad } from "../../../testing/dnsname_load.ts";

testWith(["ip"], "no question is lost among many names", async () => {
  const { answered } = await runNameLoad({ names: 300, questions: 3000, attachments: 1 });
  expect(answered).toBe(3000);
});
