import { expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SystemError } from "../../../ffi/sys/error.ts";
import { interceptSystemCalls } from "../../../ffi/sys/intercept.ts";
import { followResolvers } from "./resolvers.ts";

const EMFILE = 24;

test("without a descriptor for a changed file, the known resolvers stay until it can be read", () => {
  const directory = mkdtempSync(join(tmpdir(), "cni-resolvers-"));
  using _ = { [Symbol.dispose]: () => rmSync(directory, { recursive: true }) };
  const path = join(directory, "resolv.conf");
  const resolvers = followResolvers(path, () => undefined);
  const addresses = () => resolvers.list().map(({ address }) => String(address));
  writeFileSync(path, "nameserver 192.0.2.1\n");
  expect(addresses()).toEqual(["192.0.2.1"]);
  writeFileSync(path, "nameserver 192.0.2.22\n");
  {
    using _shortage = interceptSystemCalls(["open"], () => {
      throw new SystemError("open", EMFILE);
    });
    expect(addresses()).toEqual(["192.0.2.1"]);
  }
  expect(addresses()).toEqual(["192.0.2.22"]);
});
