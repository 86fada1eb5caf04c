import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { stopClock } from "../../testing/clock.ts";
import { useDirectory } from "../../testing/directory.ts";
import { Account } from "./account.ts";

const directory = useDirectory("cni-account-");

test("a token that was replaced is read within a minute, and at once when the old one was refused", () => {
  const write = (token: string) => writeFileSync(join(directory, "token"), `${token}\n`);
  writeFileSync(join(directory, "ca.crt"), "the authority");
  write("first");
  using clock = stopClock();
  const account = new Account(directory);
  const token = () => account.credentials().token;
  expect(account.credentials()).toEqual({ token: "first", ca: "the authority" });
  write("second");
  clock.pass(59_000);
  expect(token()).toBe("first");
  clock.pass(1000);
  expect(token()).toBe("second");
  write("third");
  account.forget();
  expect(token()).toBe("third");
});
