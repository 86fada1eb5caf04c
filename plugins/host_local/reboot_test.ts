/**
 * Reservations of an earlier boot: they are given up when they are in the way, and nothing else ever is.
 *
 * The directory is what another boot left: the same files, whose second names tell another boot.
 */
import { expect, test } from "bun:test";
import {
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { readInventory } from "./inventory.ts";
import { findEarlierBootAddresses } from "./recovery.ts";
import { type HostLocalNetwork, newHostLocalNetwork } from "../../testing/host_local.ts";
import { expectIndexMatchesDirectory } from "../../testing/host_local_index.ts";

const REFERENCE = "/usr/lib/cni/host-local";
const peerTest = test.skipIf(!existsSync(REFERENCE));
/** Room for 10.0.0.2 to 10.0.0.6. */
const SMALL = { ranges: [[{ subnet: "10.0.0.0/29" }]] };
const DUAL = { ranges: [[{ subnet: "10.0.0.0/29" }], [{ subnet: "fd00::/64" }]] };
const GC = (...ids: string[]) => ({
  config: { "cni.dev/valid-attachments": ids.map((containerID) => ({ containerID, ifname: "eth0" })) },
});

/** Has everything that was reserved be of another boot. */
function restart({ directory }: HostLocalNetwork): void {
  for (const name of readdirSync(directory)) {
    if (!name.startsWith(".")) continue;
    const old = name.replace(/:[0-9a-f]{8}$/, (boot) => `:${boot.slice(2)}${boot[1] === "0" ? "1" : "0"}`);
    renameSync(join(directory, name), join(directory, old));
  }
}

function networkOf(ipam: object, ...ids: string[]): HostLocalNetwork {
  const net = newHostLocalNetwork(ipam);
  for (const id of ids) net.add(id);
  return net;
}

function peer({ dataDir }: HostLocalNetwork, command: string, id: string, ipam: object = SMALL): { exitCode: number } {
  return Bun.spawnSync([REFERENCE], {
    env: {
      CNI_COMMAND: command,
      CNI_CONTAINERID: id,
      CNI_IFNAME: "eth0",
      CNI_NETNS: "/netns",
      CNI_PATH: "/usr/lib/cni",
    },
    stdin: Buffer.from(JSON.stringify({
      cniVersion: "1.0.0",
      name: "net",
      type: "bridge",
      ipam: { type: "host-local", dataDir, ...ipam },
    })),
  });
}

/** `10.0.0.2 a` for every reservation. */
const reserved = (net: HostLocalNetwork): string[] =>
  Object.entries(net.files()).filter(([name]) => /^[\da-f.:]+$/.test(name)).map(([name, text]) =>
    `${name} ${text.split("\r")[0]}`
  ).sort();

test("a full range is cleared of an earlier boot, which is said; this boot's and younger files of others stay", () => {
  using net = networkOf(SMALL, "a", "b");
  restart(net);
  net.add("c");
  writeFileSync(join(net.directory, "10.0.0.5"), "foreign\r\neth0");
  writeFileSync(join(net.directory, "10.0.0.6"), "oldest");
  expect(net.log).toEqual([]);
  expect(net.add("d")).toBe("10.0.0.2");
  expect(net.log).toEqual([
    'host-local: Reclaimed 2 addresses reserved before the last start of the machine: 10.0.0.2 of container "a", ' +
    'interface "eth0"; 10.0.0.3 of container "b", interface "eth0"',
  ]);
  expect(reserved(net)).toEqual(["10.0.0.2 d", "10.0.0.4 c", "10.0.0.5 foreign", "10.0.0.6 oldest"]);
  expect(net.names().filter((name) => name.startsWith("."))).toEqual([".c:eth0", ".d:eth0"]);
  expectIndexMatchesDirectory(net.directory, "10.0.0.0", 9);
  net.add("e");
  for (let i = 0; i < 3; i++) expect(() => net.add("f")).toThrow("are in use");
  expect(net.log).toHaveLength(1);
});

test("as long as there is room, what an earlier boot left stays for its DEL, which knows no namespace", () => {
  using net = networkOf(DUAL, "a", "b");
  restart(net);
  net.add("c");
  expect(reserved(net)).toHaveLength(6);
  for (const id of ["a", "b", "c", "a"]) net.call("DEL", { id });
  expect(net.names()).toEqual(["last_reserved_ip.0", "last_reserved_ip.1", "lock"]);
  expect(net.log).toEqual([]);
});

test("a container that comes back under its id, and an address that is asked for, are not in their own way", () => {
  using net = networkOf(DUAL, "a", "b", "c");
  restart(net);
  expect(net.add("a")).toBe("10.0.0.5");
  expect(net.log[0]).toStartWith("host-local: Reclaimed 6 addresses");
  net.add("b", { args: "IP=10.0.0.2" });
  restart(net);
  expect(net.add("z", { args: "IP=10.0.0.2" })).toBe("10.0.0.2");
  expect(reserved(net)).toEqual(["10.0.0.2 z", expect.stringMatching(/^fd00::\d z$/)]);
  // Of this boot.
  expect(() => net.add("y", { args: "IP=10.0.0.2" })).toThrow('container "z", interface "eth0" holds it');
});

test("of one container's addresses, only those of an earlier boot go, with their second name", () => {
  using net = networkOf(SMALL, "a");
  restart(net);
  const ipam = { ranges: [[{ subnet: "10.7.0.0/30" }]] };
  expect(net.add("a", { ipam })).toBe("10.7.0.2");
  expect(net.names().filter((name) => name.startsWith("."))).toHaveLength(2);
  expect(() => net.add("b", { ipam })).toThrow("are in use");
  expect(net.log).toEqual([expect.stringContaining('10.0.0.2 of container "a"')]);
  expect(net.names()).toEqual([".a:eth0", "10.7.0.2", "last_reserved_ip.0", "lock"]);
});

test("a request that no reservation is in the way of gives up nothing", () => {
  using net = networkOf(SMALL, "a");
  restart(net);
  expect(() => net.add("b", { args: "IP=10.9.9.9" })).toThrow("none of them includes it");
  expect(() => net.add("b", { args: "IP=10.0.0.1" })).toThrow("gateway");
  expect(reserved(net)).toEqual(["10.0.0.2 a"]);
});

test("GC takes what an earlier boot left also where its clock was ahead, and spares who is on the list", () => {
  using net = networkOf(SMALL, "a", "b");
  restart(net);
  const soon = new Date(Date.now() + 1);
  const madeAt = BigInt(Date.now() - 1000) * 1_000_000n;
  for (const last of [2, 3]) utimesSync(join(net.directory, `10.0.0.${last}`), soon, soon);
  Bun.sleepSync(2);
  net.add("c");
  net.call("GC", { ...GC("b"), snapshotTime: madeAt });
  expect(reserved(net)).toEqual(["10.0.0.3 b", "10.0.0.4 c"]);
  net.call("GC", { ...GC(), snapshotTime: madeAt });
  // Who came after the list was made.
  expect(reserved(net)).toEqual(["10.0.0.4 c"]);
});

test("STATUS of a range that only an earlier boot fills is that of one with room", () => {
  using net = networkOf({ ranges: [[{ subnet: "10.0.0.0/30" }]] }, "a");
  expect(() => net.call("STATUS")).toThrow("are in use");
  restart(net);
  net.call("STATUS");
  expect(reserved(net)).toEqual(["10.0.0.2 a"]);
});

test("a reservation whose boot is not told counts as one of this boot, unless its file is older", () => {
  using net = networkOf(SMALL, "a", "b");
  // As left by a crash in the middle of an ADD, and by another program.
  rmSync(join(net.directory, readdirSync(net.directory).find((name) => name.startsWith(".a:"))!));
  writeFileSync(join(net.directory, "10.0.0.4"), "c\r\neth0");
  const old = BigInt(Date.parse("2020-01-01T00:00:00Z")) * 1_000_000n;
  utimesSync(join(net.directory, "10.0.0.4"), 1577836800, 1577836800);
  const earlier = (limit: bigint) =>
    findEarlierBootAddresses(net.directory, readInventory(net.directory), () => ({ mtime }) => mtime < limit)
      .map(({ address }) => address);
  expect(earlier(old)).toEqual([]);
  expect<string[]>(earlier(old + 1n)).toEqual(["10.0.0.4"]);
  // Nobody sets the time of change, so that on this kernel they are of this boot.
  expect(findEarlierBootAddresses(net.directory, readInventory(net.directory))).toEqual([]);
});

const WRONG_NAMES = [":12345678:9", ":1234567", ":123456789", ":1234567g", ":ABCDEF01", ":", ""];
test.each(WRONG_NAMES)("second names that end with %p tell no boot", (end) => {
  using net = networkOf(SMALL, ..."abcde");
  for (const name of readdirSync(net.directory).filter((each) => each.startsWith("."))) {
    renameSync(join(net.directory, name), join(net.directory, name.replace(/:[0-9a-f]{8}$/, end)));
  }
  expect(() => net.add("f")).toThrow("are in use");
  net.call("GC", GC(..."abcde"));
  for (const id of "abcde") net.call("DEL", { id });
  expect(reserved(net)).toEqual([]);
  expect(net.log).toEqual([]);
});

peerTest(
  "the reference plugin removes what an earlier boot left with both names, and its own of this boot stay",
  () => {
    using net = networkOf(SMALL, "a", "b");
    restart(net);
    for (const id of ["c", "d", "e"]) expect(peer(net, "ADD", id).exitCode).toBe(0);
    expect(peer(net, "DEL", "a").exitCode).toBe(0);
    expect(net.names().filter((name) => name.includes("a:"))).toEqual([]);
    expect(net.add("f")).toBe("10.0.0.2");
    expect(net.log).toEqual([]);
    expect(net.add("g")).toBe("10.0.0.3");
    expect(net.log).toEqual([
      expect.stringContaining(
        'Reclaimed an address reserved before the last start of the machine: 10.0.0.3 of container "b"',
      ),
    ]);
    expect(() => net.add("h")).toThrow("are in use");
    expect(peer(net, "ADD", "h").exitCode).toBe(1);
    for (const id of [..."cdefg"]) expect(peer(net, "DEL", id).exitCode).toBe(0);
    expect(net.names()).toEqual(["last_reserved_ip.0", "lock"]);
  },
);

test("a network that stays full is not listed again for each that is refused", () => {
  using net = networkOf({ ranges: [[{ subnet: "10.0.0.0/30" }]] });
  mkdirSync(net.directory);
  writeFileSync(join(net.directory, "10.0.0.2"), "foreign\r\neth0");
  const index = join(net.dataDir, ".net.index");
  const mayHaveEarlier = () => readFileSync(index, "latin1").split("\n")[2]!.split(" ")[2];
  net.call("DEL", { id: "nobody" });
  expect(mayHaveEarlier()).toBe("1");
  expect(() => net.add("a")).toThrow("are in use");
  expect(mayHaveEarlier()).toBe("0");
  expect(() => net.add("a")).toThrow("are in use");
});

test(
  "random calls on what earlier boots and others left: nobody of this boot loses an address, none is given twice",
  () => {
    const id = fc.constantFrom(..."abcdefgh");
    const step = fc.oneof(
      { weight: 8, arbitrary: fc.record({ what: fc.constant("ADD" as const), id }) },
      { weight: 3, arbitrary: fc.record({ what: fc.constant("DEL" as const), id }) },
      { weight: 1, arbitrary: fc.record({ what: fc.constant("GC" as const), id }) },
      { weight: 2, arbitrary: fc.record({ what: fc.constant("restart" as const), id }) },
      { weight: 2, arbitrary: fc.record({ what: fc.constant("foreign" as const), id }) },
      { weight: 1, arbitrary: fc.record({ what: fc.constant("index" as const), id }) },
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
        using net = networkOf(SMALL, "a");
        /** Who must keep which address; others may. */
        const living = new Map([["a", "10.0.0.2"]]);
        const foreign = new Map<string, string>();
        for (const { what, id } of steps) {
          if (what === "ADD") {
            let address: string | undefined;
            try {
              address = net.add(id);
            } catch {
              expect(living.has(id) || foreign.has(id) || living.size + foreign.size === 5).toBe(true);
            }
            if (address !== undefined) {
              expect([...living.values(), ...foreign.values()]).not.toContain(address);
              living.set(id, address);
            }
          } else if (what === "DEL" || what === "GC") {
            net.call(what, { id, ...what === "GC" && GC(id) });
            for (const map of [living, foreign]) {
              for (const each of map.keys()) if ((each === id) === (what === "DEL")) map.delete(each);
            }
          } else if (what === "restart") {
            restart(net);
            living.clear();
          } else if (what === "foreign") {
            const free = [2, 3, 4, 5, 6].map((n) => `10.0.0.${n}`).find((each) => !(each in net.files()));
            if (free === undefined || living.has(id) || foreign.has(id)) continue;
            // One that an earlier boot left for the same container would go with its DEL.
            net.call("DEL", { id });
            writeFileSync(join(net.directory, free), `${id}\r\neth0`);
            foreign.set(id, free);
          } else rmSync(join(net.dataDir, ".net.index"), { force: true });
          const files = reserved(net);
          for (const [each, address] of [...living, ...foreign]) expect(files).toContain(`${address} ${each}`);
          expectIndexMatchesDirectory(net.directory, "10.0.0.0", 8);
        }
      }),
      { numRuns: 60 },
    );
  },
  60_000,
);

/** What is in the file of 10.0.0.2 instead of `subject CR LF eth0`. */
const HALVES = ["s", "subj", "subject", "subject\r", "subject\r\n", "subject\r\net"];

test.each(HALVES)("%p in a file of its own: nobody is given the address before a GC without its container", (half) => {
  using net = networkOf(SMALL, "subject", "other");
  const file = join(net.directory, "10.0.0.2");
  rmSync(file);
  writeFileSync(file, half);
  for (const id of ["x", "y", "z"]) expect(net.add(id)).not.toBe("10.0.0.2");
  expect(() => net.add("full")).toThrow("are in use");
  for (const id of ["x", "y", "z"]) net.call("DEL", { id });
  net.call("GC", GC("subject", "other"));
  expect(readFileSync(file, "utf8")).toBe(half);
  expectIndexMatchesDirectory(net.directory, "10.0.0.0", 8);
  net.call("DEL", { id: "subject" });
  expect(net.log).toEqual([]);
  const isLeftToGc = reserved(net).length > 1;
  net.call("GC", GC("other"));
  expect(reserved(net)).toEqual(["10.0.0.3 other"]);
  const said = isLeftToGc ? [expect.stringContaining("Removed the reservation of 10.0.0.2 by container ")] : [];
  expect(net.log).toEqual(said);
});

test.each(["", ...HALVES, "\0\0\0\0"])("%p in the file and its second name: the name counts", (half) => {
  for (const fresh of [false, true]) {
    using net = networkOf(DUAL, "subject", "other");
    writeFileSync(join(net.directory, "10.0.0.2"), half);
    if (fresh) rmSync(join(net.dataDir, ".net.index"));
    for (const id of ["s", "subj", "sub"]) net.call("DEL", { id });
    expect(net.names()).toContain("10.0.0.2");
    expect(net.add("x")).toBe("10.0.0.4");
    expect(() => net.add("subject")).toThrow("holds 10.0.0.2 already");
    net.call("CHECK", { id: "subject" });
    net.call("DEL", { id: "subject" });
    expect(net.names().filter((name) => /subject|::2|0\.2$/.test(name))).toEqual([]);
  }
});

test("a DEL that was killed before its last removal takes no address of another interface with it", () => {
  using net = newHostLocalNetwork(SMALL);
  mkdirSync(net.directory);
  writeFileSync(join(net.directory, "10.0.0.2"), "abc\r\nnet1");
  rmSync(join(net.directory, net.add("abc", { ifname: "net10" })));
  net.call("DEL", { id: "abc", ifname: "net10" });
  expect(net.files()["10.0.0.2"]).toBe("abc\r\nnet1");
  expect(net.names()).toEqual(["10.0.0.2", "last_reserved_ip.0", "lock"]);
  expect(net.log).toEqual([]);
});

test("a reservation by id alone is not that of a container whose id begins like it", () => {
  using net = newHostLocalNetwork(SMALL);
  mkdirSync(net.directory);
  writeFileSync(join(net.directory, "10.0.0.6"), "web");
  const other = { ipam: { ranges: [[{ subnet: "fd00::/64" }]] } };
  net.add("web-2", other);
  writeFileSync(join(net.directory, "notes"), "");
  net.call("DEL", { id: "web-2", ...other });
  expect(reserved(net)).toEqual(["10.0.0.6 web"]);
  expect(net.log).toEqual([]);
});

test("an address with second names of two boots is one of this boot", () => {
  using net = networkOf(SMALL, "c");
  const copies = ["00000000", "00000001", "ffffffff"].flatMap((boot) =>
    ["a", "c", "z"].map((id) => `.${id}:eth0:${boot}`)
  );
  for (const name of copies) linkSync(join(net.directory, "10.0.0.2"), join(net.directory, name));
  for (const id of ["d", "e", "f", "g"]) net.add(id);
  expect(() => net.add("h")).toThrow("are in use");
  net.call("DEL", { id: "c" });
  net.add("h");
  expect(reserved(net).map((each) => each.split(" ")[1]).sort()).toEqual(["d", "e", "f", "g", "h"]);
});

test("a second name that somebody linked to a file of another tells that file's holder no more than it says", () => {
  using net = networkOf(SMALL, "a");
  linkSync(join(net.directory, "last_reserved_ip.0"), join(net.directory, ".b:eth0:00000001"));
  net.call("DEL", { id: "b" });
  net.call("GC", GC("a"));
  expect(reserved(net)).toEqual(["10.0.0.2 a"]);
});

test.each(["", "a\r\net", "\0\0\0\0", "garbage"])(
  "a second name in a file of its own that holds %p goes, the address stays",
  (text) => {
    using net = networkOf(SMALL, "a");
    const name = readdirSync(net.directory).find((each) => each.startsWith(".a:"))!;
    for (const wrong of [name, ".a:eth0"]) {
      rmSync(join(net.directory, wrong), { force: true });
      writeFileSync(join(net.directory, wrong), text);
    }
    net.add("b");
    expect(reserved(net)).toEqual(["10.0.0.2 a", "10.0.0.3 b"]);
    expect(readdirSync(net.directory)).not.toContain(name);
    net.call("DEL", { id: "a" });
    expect(net.names()).toEqual([".b:eth0", "10.0.0.3", "last_reserved_ip.0", "lock"]);
  },
);

test.skipIf(!Bun.which("strace"))(
  "killed at any removal of what an earlier boot left, the next ADD finishes it",
  () => {
    const testing = JSON.stringify(join(import.meta.dir, "../../testing/host_local.ts"));
    let killed = 0;
    for (let when = 1;; when++) {
      using net = networkOf(SMALL, "a", "b");
      restart(net);
      for (const id of ["c", "d", "e"]) net.add(id);
      const body = `import { newHostLocalNetwork } from ${testing};
      newHostLocalNetwork(${JSON.stringify(SMALL)}, ${JSON.stringify(net.dataDir)}).add("x");`;
      const paths = readdirSync(net.directory).filter((name) => /^(\.[ab]:|10\.0\.0\.[23]$)/.test(name))
        .flatMap((name) => ["-P", join(net.directory, name)]);
      const inject = ["-e", `inject=unlink,unlinkat:signal=KILL:when=${when}`];
      const { exitCode } = Bun.spawnSync(
        ["strace", "-f", "-o", "/dev/null", ...paths, ...inject, process.execPath, "-e", body],
      );
      net.call("DEL", { id: "x" });
      for (const id of ["f", "g"]) net.add(id);
      expect(reserved(net).map((each) => each.split(" ")[1]).sort()).toEqual(["c", "d", "e", "f", "g"]);
      expect(net.names().filter((name) => /^\.[abx]:/.test(name))).toEqual([]);
      expectIndexMatchesDirectory(net.directory, "10.0.0.0", 8);
      if (exitCode === 0) break;
      killed++;
    }
    expect(killed).toBeGreaterThan(2);
  },
);
