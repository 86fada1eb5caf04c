/** Each attachment has a file of its own, whatever its container and its interface are called. */
import { expect } from "bun:test";
import { existsSync, readdirSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Netns } from "../../ffi/netns/netns.ts";
import * as link from "../../ffi/route/link.ts";
import { runIp } from "../../testing/netns.ts";
import { sandboxTest } from "../../testing/sandbox.ts";
import { tuning } from "./plugin.ts";

/** An attachment, and what is done with it. */
interface Attached {
  readonly netns: Netns;
  run(verb: "ADD" | "CHECK" | "DEL", mtu: number): void;
}

/** Two attachments of which id and interface name make one text when joined by an underscore. */
interface Bench {
  /** `c` with `e_x`. */
  readonly first: Attached;
  /** `c_e` with `x`. */
  readonly second: Attached;
  readonly dataDir: string;
  files(): string[];
  mtus(): (number | undefined)[];
}

function namesakeTest(name: string, body: (bench: Bench) => void): void {
  sandboxTest(name, [], ({ directory, call, newContainer }) => {
    const plugin = tuning(join(directory, "allowlist.conf"));
    const dataDir = join(directory, "state");
    const attach = (containerId: string, ifname: string): Attached => {
      const netns = newContainer();
      runIp(netns, `link add ${ifname} type veth peer name peer0`);
      const config = {
        dataDir,
        prevResult: { cniVersion: "1.1.0", interfaces: [{ name: ifname, sandbox: netns.path }] },
      };
      return { netns, run: (verb, mtu) => void call(plugin, verb, { ...config, mtu }, { containerId, ifname, netns }) };
    };
    const [first, second] = [attach("c", "e_x"), attach("c_e", "x")];
    body({
      first,
      second,
      dataDir,
      files: () => existsSync(dataDir) ? readdirSync(dataDir).sort() : [],
      mtus: () => [link.get(first.netns.route, "e_x").mtu, link.get(second.netns.route, "x").mtu],
    });
  });
}

namesakeTest("attachments whose names read alike have a file each", ({ first, second, files, mtus }) => {
  first.run("ADD", 1400);
  second.run("ADD", 1300);
  expect([mtus(), files()]).toEqual([[1400, 1300], ["c:e_x.json", "c_e:x.json"]]);
  first.run("CHECK", 1400);
  second.run("CHECK", 1300);
  first.run("DEL", 1400);
  expect([mtus(), files()]).toEqual([[1500, 1300], ["c_e:x.json"]]);
  second.run("DEL", 1300);
  expect([mtus(), files()]).toEqual([[1500, 1500], []]);
});

namesakeTest("a file under the former name is found by the attachment that it names", (bench) => {
  const { first, second, dataDir, files, mtus } = bench;
  first.run("ADD", 1400);
  renameSync(join(dataDir, "c:e_x.json"), join(dataDir, "c_e_x.json"));
  first.run("CHECK", 1400);
  // Of what was before, the first counts.
  first.run("ADD", 1350);
  expect(files()).toEqual(["c_e_x.json"]);
  second.run("ADD", 1300);
  second.run("DEL", 1300);
  expect([mtus(), files()]).toEqual([[1350, 1500], ["c_e_x.json"]]);
  first.run("DEL", 1350);
  expect([mtus(), files()]).toEqual([[1500, 1500], []]);
});

namesakeTest(
  "a file of the reference plugin, which does not say whose it is, is found by DEL and kept by ADD",
  (bench) => {
    const { first, second, dataDir, files, mtus } = bench;
    second.run("ADD", 1300);
    writeFileSync(join(dataDir, "c_e_x.json"), '{"mtu":1450}');
    second.run("ADD", 1300);
    second.run("DEL", 1300);
    expect([mtus(), files()]).toEqual([[1500, 1500], ["c_e_x.json"]]);
    first.run("DEL", 1400);
    expect([mtus(), files()]).toEqual([[1450, 1500], []]);
  },
);
