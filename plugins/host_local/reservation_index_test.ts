import { expect, test } from "bun:test";
import {
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { newHostLocalNetwork } from "../../testing/host_local.ts";
import { expectIndexMatchesDirectory, isIndexCurrent } from "../../testing/host_local_index.ts";

const IPAM = { ranges: [[{ subnet: "10.0.0.0/28" }], [{ subnet: "fd00::/64" }]] };

function networkWith(...ids: string[]) {
  const net = newHostLocalNetwork(IPAM);
  for (const id of ids) net.add(id);
  const index = join(net.dataDir, ".net.index");
  return { ...net, index };
}

test("the index holds after every call, and stands beside the directory for its owner alone", () => {
  using net = networkWith("a", "b");
  expect(readdirSync(net.dataDir).sort()).toEqual([".net.index", "net"]);
  expect(statSync(net.index).mode & 0o7777).toBe(0o600);
  for (const verb of ["ADD", "CHECK", "STATUS", "DEL", "DEL"] as const) {
    net.call(verb, { id: "c" });
    expect([verb, isIndexCurrent(net.directory)]).toEqual([verb, true]);
  }
  net.call("GC", { config: { "cni.dev/valid-attachments": [] } });
  expect(isIndexCurrent(net.directory)).toBe(true);
  expectIndexMatchesDirectory(net.directory, "10.0.0.0", 20);
});

test("ADD and DEL go by the index alone", () => {
  using net = networkWith("a");
  // A name that comes and goes unseen would be seen in a list; here its trace is removed.
  const { mtime, atime } = statSync(net.directory);
  expect(isIndexCurrent(net.directory)).toBe(true);
  writeFileSync(join(net.directory, "10.0.0.9"), "");
  utimesSync(net.directory, atime, mtime);
  // Setting the time back is a change as well, which nobody can hide.
  expect(isIndexCurrent(net.directory)).toBe(false);
  net.add("b");
  expect(net.log).toEqual([expect.stringContaining("Recovered address 10.0.0.9")]);
});

const CHANGES: Record<string, (directory: string) => void> = {
  "a new file": (directory) => writeFileSync(join(directory, "10.0.0.9"), "z\r\neth0"),
  "a file of another name": (directory) => writeFileSync(join(directory, "notes"), ""),
  "a removed file": (directory) => unlinkSync(join(directory, "10.0.0.2")),
  "a renamed file": (directory) => renameSync(join(directory, "10.0.0.2"), join(directory, "10.0.0.8")),
  "a second name": (directory) => linkSync(join(directory, "10.0.0.2"), join(directory, "10.0.0.8")),
  "a directory": (directory) => mkdirSync(join(directory, "10.0.0.9")),
  "a link": (directory) => symlinkSync("nowhere", join(directory, "10.0.0.9")),
  "a file that comes and goes": (directory) => {
    writeFileSync(join(directory, "x"), "");
    unlinkSync(join(directory, "x"));
  },
  "another directory of the name": (directory) => {
    rmSync(directory, { recursive: true });
    mkdirSync(directory);
  },
};
for (const [what, change] of Object.entries(CHANGES)) {
  test(`${what} is noticed, however soon after our own change`, () => {
    for (let i = 0; i < 20; i++) {
      using net = networkWith("a");
      change(net.directory);
      expect(isIndexCurrent(net.directory)).toBe(false);
      expectIndexMatchesDirectory(net.directory, "10.0.0.0", 20);
      expect(isIndexCurrent(net.directory)).toBe(true);
    }
  });
}

const DAMAGES: Record<string, (path: string) => void> = {
  "empty": (path) => truncateSync(path),
  "half": (path) => truncateSync(path, statSync(path).size / 2),
  "cut within the header": (path) => truncateSync(path, 100),
  "cut within a record": (path) => truncateSync(path, statSync(path).size - 4),
  "all zeros": (path) => writeFileSync(path, new Uint8Array(statSync(path).size)),
  "zeros behind the header": (path) => overwrite(path, (bytes) => bytes.fill(0, 512)),
  "ones behind the header": (path) => overwrite(path, (bytes) => bytes.fill(255, 512)),
  "one record in the place of another": (path) => overwrite(path, (bytes) => bytes.copyWithin(512, 512 + 24, 512 + 48)),
  "of an earlier boot": (path) =>
    overwrite(path, (bytes) => bytes.set(new TextEncoder().encode("00000000"), bytes.indexOf(10) + 1)),
  "of more records than there can be": (path) =>
    overwrite(path, (bytes) => {
      const [is, about, numbers = ""] = bytes.toString("latin1", 0, 512).split("\n");
      bytes.fill(0, 0, 512).write([is, about, numbers.replace(/^\d+/, "1e300"), ""].join("\n"));
    }),
  "of another version": (path) => overwrite(path, (bytes) => void (bytes[17] = 0x32)),
  "text of somebody else": (path) => writeFileSync(path, "mine\n".repeat(5000)),
  "a link to nowhere": (path) => (unlinkSync(path), symlinkSync("nowhere", path)),
  "a pipe": (path) => (unlinkSync(path), Bun.spawnSync(["mkfifo", path])),
  "not there": (path) => unlinkSync(path),
};
function overwrite(path: string, change: (bytes: Buffer) => void): void {
  const bytes = readFileSync(path);
  change(bytes);
  writeFileSync(path, bytes);
}
for (const [what, damage] of Object.entries(DAMAGES)) {
  test(`an index that is ${what} is made anew`, () => {
    using net = networkWith("a", "b");
    damage(net.index);
    expectIndexMatchesDirectory(net.directory, "10.0.0.0", 20);
    damage(net.index);
    net.call("DEL", { id: "a" });
    damage(net.index);
    expect(net.add("c")).toBe("10.0.0.4");
    expect(isIndexCurrent(net.directory)).toBe(true);
    expect(Object.keys(net.files()).filter((name) => name.startsWith("10."))).toEqual(["10.0.0.3", "10.0.0.4"]);
    expect(net.log).toEqual([]);
  });
}

test("a link in the place of the index is not followed", () => {
  using net = networkWith("a");
  const target = join(net.dataDir, "target");
  const content = readFileSync(net.index);
  renameSync(net.index, target);
  symlinkSync(target, net.index);
  net.add("b");
  expect(readFileSync(target)).toEqual(content);
  expect(statSync(net.index).ino).not.toBe(statSync(target).ino);
});

test("without an index all works, by lists", () => {
  using net = networkWith();
  mkdirSync(join(net.index, "full"), { recursive: true });
  expect(net.add("a")).toBe("10.0.0.2");
  expect(net.add("b")).toBe("10.0.0.3");
  expect(() => net.add("a")).toThrow("holds 10.0.0.2 already");
  net.call("DEL", { id: "a" });
  expectIndexMatchesDirectory(net.directory, "10.0.0.0", 20);
  expect(net.names()).not.toContain("10.0.0.2");
  expect(readdirSync(net.index)).toEqual(["full"]);
});

test("an attachment may hold a thousand addresses", () => {
  using net = newHostLocalNetwork({ ranges: [[{ subnet: "10.0.0.0/16" }]] });
  mkdirSync(net.directory);
  for (let i = 0; i < 700; i++) writeFileSync(join(net.directory, `10.0.${i >> 8}.${i & 255}`), "a\r\neth0");
  for (let i = 700; i < 1000; i++) writeFileSync(join(net.directory, `10.0.${i >> 8}.${i & 255}`), "old");
  expectIndexMatchesDirectory(net.directory, "10.0.0.0", 1030);
  expect(isIndexCurrent(net.directory)).toBe(true);
  expectIndexMatchesDirectory(net.directory, "10.0.0.0", 1030);
  expect(net.add("b")).toBe("10.0.3.232");
  net.call("DEL", { id: "a" });
  net.call("DEL", { id: "old" });
  expect(Object.keys(net.files())).toEqual(["10.0.3.232", "last_reserved_ip.0", "lock"]);
});

test("an index grows with the network, and stays that large", () => {
  using net = newHostLocalNetwork({ ranges: [[{ subnet: "10.0.0.0/20" }]] });
  const size = () => statSync(join(net.dataDir, ".net.index")).size;
  for (let i = 0; i < 420; i++) net.add(`c${i}`);
  expect(size()).toBe(512 + 420 * 24);
  expect(isIndexCurrent(net.directory)).toBe(true);
  expectIndexMatchesDirectory(net.directory, "10.0.0.0", 430);
  for (let i = 0; i < 420; i += 2) net.call("DEL", { id: `c${i}` });
  expectIndexMatchesDirectory(net.directory, "10.0.0.0", 430);
  for (let i = 0; i < 420; i += 2) net.add(`d${i}`);
  expect(size()).toBe(512 + 420 * 24);
  expect(isIndexCurrent(net.directory)).toBe(true);
  expectIndexMatchesDirectory(net.directory, "10.0.0.0", 640);
});

test("an address that appears where the index knows of none is not given, and is known from then on", () => {
  using net = networkWith("a");
  const path = join(net.directory, "10.0.0.3");
  writeFileSync(path, "z\r\neth0");
  // As a program does that does not lock and comes at the wrong moment: the index is made to believe that nothing happened.
  forge(net.directory, net.index);
  expect(() => net.add("b")).toThrow(expect.objectContaining({ code: 11 }));
  expect(net.add("b")).toBe("10.0.0.4");
  expect(readFileSync(path, "utf8")).toBe("z\r\neth0");
  net.call("DEL", { id: "z" });
  expect(net.names()).not.toContain("10.0.0.3");
});

test("an address that is gone is missed by DEL, and a full network is looked at again", () => {
  using net = newHostLocalNetwork({ ranges: [[{ subnet: "10.0.0.0/30" }]] });
  const index = join(net.dataDir, ".net.index");
  net.add("a");
  unlinkSync(join(net.directory, "10.0.0.2"));
  forge(net.directory, index);
  expect(() => net.add("b")).toThrow("are in use");
  // The list is too old to refuse by.
  overwriteText(index, (text) => text.replace(/ \d{13}\n/, " 1000000000000\n"));
  expect(net.add("b")).toBe("10.0.0.2");
  // That list was not the last one: what the removed address left was removed as well.
  net.call("DEL", { id: "a" });
  unlinkSync(join(net.directory, "10.0.0.2"));
  forge(net.directory, index);
  net.call("DEL", { id: "b" });
  expectIndexMatchesDirectory(net.directory, "10.0.0.0", 5);
});

function overwriteText(path: string, change: (text: string) => string): void {
  overwrite(path, (bytes) => void bytes.write(change(bytes.toString("latin1", 0, 512)), "latin1"));
}

/** Writes the times that the directory has by now into the index. */
function forge(directory: string, index: string): void {
  const { mtimeNs, ctimeNs } = statSync(directory, { bigint: true });
  overwriteText(index, (text) => text.replace(/ \d+ \d+\n(?=\d+ \d+ 0 )/, ` ${mtimeNs} ${ctimeNs}\n`));
  expect(isIndexCurrent(directory)).toBe(true);
}

const id = fc.constantFrom("a", "b", "c", "d");
const ifname = fc.constantFrom("eth0", "net1");
const name = fc.integer({ min: 1, max: 14 }).map((host) => `10.0.0.${host}`);
const step = fc.oneof(
  fc.record({ our: fc.constantFrom("ADD" as const, "DEL" as const), id, ifname }),
  fc.record({ our: fc.constant("GC" as const), id, ifname }),
  fc.record({ foreign: fc.constant("create" as const), name, content: fc.constantFrom("a\r\neth0", "b", "", "?") }),
  fc.record({ foreign: fc.constantFrom("remove" as const, "mkdir" as const), name, content: fc.constant("") }),
);

test("random calls and foreign changes: the index says what the directory holds", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 25 }), (steps) => {
      using net = newHostLocalNetwork(IPAM);
      mkdirSync(net.directory);
      for (const each of steps) {
        if ("our" in each) {
          const valid = [{ containerID: each.id, ifname: each.ifname }];
          try {
            net.call(each.our, { ...each, config: each.our === "GC" ? { "cni.dev/valid-attachments": valid } : {} });
          } catch {
            // Refused: it has one, or there is none left.
          }
          if (each.our === "DEL") expect(namesHeldBy(net.directory, `${each.id}\r\n${each.ifname}`)).toEqual([]);
        } else {
          const path = join(net.directory, each.name);
          if (each.foreign === "remove") rmSync(path, { force: true, recursive: true });
          else if (net.names().includes(each.name)) continue;
          else if (each.foreign === "mkdir") mkdirSync(path);
          else writeFileSync(path, each.content);
        }
        expectIndexMatchesDirectory(net.directory, "10.0.0.0", 17);
      }
    }),
    { numRuns: 60 },
  );
});

function namesHeldBy(directory: string, content: string): string[] {
  const files = readdirSync(directory, { withFileTypes: true }).filter((each) => each.isFile());
  return files.map((each) => each.name).filter((each) => readFileSync(join(directory, each), "utf8") === content);
}
