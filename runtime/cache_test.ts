import { beforeEach, expect, spyOn, test } from "bun:test";
import fc from "fast-check";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { SystemError } from "../ffi/sys/error.ts";
import * as status from "../ffi/sys/stat.ts";
import { CniError } from "../spec/error.ts";
import {
  type AttachmentKey,
  type CacheEntry,
  cachePath,
  createEntry,
  findEntry,
  findEntryAgain,
  findOccupant,
  listCacheEntries,
  removeEntry,
  replaceEntry,
} from "./cache.ts";
import { useDirectory } from "../testing/directory.ts";
import { errorOfCall } from "../testing/plugin_call.ts";

const root = useDirectory("cni-cache-");

let directory = "";
let directories = 0;
beforeEach(() => {
  directory = join(root, String(directories++));
});

const key: AttachmentKey = { network: "web", containerId: "c1", ifname: "eth0" };
const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
const written = { boot };
const netnsCookie = "7";
const full: CacheEntry = {
  ...key,
  config: '{"name":"web","é":1}',
  netns: "/run/netns/a",
  netnsCookie,
  args: [["IgnoreUnknown", "1"], ["IP", "10.1.0.5"]],
  capabilityArgs: { portMappings: [{ hostPort: 80 }], "io.x": { b: "<b>", a: 1 } },
  result: { ips: [{ gateway: "10.1.0.1", address: "10.1.0.5/24" }], cniVersion: "1.1.0" },
  written,
};
const bare: CacheEntry = { ...key, config: "{}", netnsCookie, args: [], capabilityArgs: {}, written };

/** Puts a file into the cache as another program would. */
function plant(name: string, text: string): void {
  mkdirSync(join(directory, "results"), { recursive: true });
  writeFileSync(join(directory, "results", name), text);
}

test("createEntry() writes what libcni would, and the boot behind it", () => {
  createEntry(directory, full);
  // Kind, keys and their order as in libcni (1.x, "cniCacheV1"), whose JSON is compact and escapes "<". Compared with a file of
  // libcni itself in podman_test.ts.
  const { stdout } = Bun.spawnSync(["base64", "-w0"], { stdin: Buffer.from(full.config) });
  expect(readFileSync(join(directory, "results/web-c1-eth0"), "utf8")).toBe(
    `{"kind":"cniCacheV1","containerId":"c1","config":"${stdout}","ifName":"eth0","networkName":"web",` +
      '"netns":"/run/netns/a","cniArgs":[["IgnoreUnknown","1"],["IP","10.1.0.5"]],' +
      '"capabilityArgs":{"io.x":{"b":"\\u003cb\\u003e","a":1},"portMappings":[{"hostPort":80}]},' +
      '"result":{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.5/24","gateway":"10.1.0.1"}]},' +
      `"bootId":"${boot}","netnsCookie":"7"}`,
  );
});

test("createEntry() writes the cookie of the namespace behind the boot, without which it says nothing", () => {
  createEntry(directory, { ...full, netnsCookie: "18446744073709551615" });
  const text = readFileSync(cachePath(directory, key), "utf8");
  expect(text).toEndWith(`,"bootId":"${boot}","netnsCookie":"18446744073709551615"}`);
  expect(findEntry(directory, key)).toEqual({ ...full, netnsCookie: "18446744073709551615" });
  for (const more of [{ bootId: undefined }, { netnsCookie: 5 }]) {
    plant("web-c1-eth0", JSON.stringify({ ...JSON.parse(text), ...more }));
    expect(findEntry(directory, key)).not.toHaveProperty("netnsCookie");
  }
});

test("createEntry() keeps directory and file to their owner, and leaves no other file", () => {
  createEntry(directory, full);
  replaceEntry(directory, full);
  expect(statSync(join(directory, "results")).mode & 0o777).toBe(0o700);
  expect(statSync(join(directory, "results/web-c1-eth0")).mode & 0o777).toBe(0o600);
  expect(readdirSync(join(directory, "results"))).toEqual(["web-c1-eth0"]);
});

test.each([["full", full], ["bare", bare]])("findEntry() reads a %s entry back", (_, entry) => {
  createEntry(directory, entry);
  expect(findEntry(directory, key)).toEqual(entry);
});

test("findEntry() takes the namespace from the result where older libcni did not write it down", () => {
  const file = (interfaces: unknown) =>
    JSON.stringify({
      kind: "cniCacheV1",
      containerId: "c1",
      ifName: "eth0",
      networkName: "web",
      result: { interfaces },
    });
  const netnsOf = (interfaces: unknown) => {
    plant("web-c1-eth0", file(interfaces));
    return findEntry(directory, key)?.netns;
  };
  expect(netnsOf([{ name: "eth0" }, { name: "eth1", sandbox: "/n/1" }, { name: "eth0", sandbox: "/n/0" }])).toBe(
    "/n/0",
  );
  for (
    const none of [undefined, null, {}, [], [null, 1], [{ name: "eth1", sandbox: "/n/1" }], [{
      name: "eth0",
      sandbox: 1,
    }]]
  ) {
    expect(netnsOf(none)).toBeUndefined();
  }
});

test("findEntry() keeps the digits of large numbers", () => {
  plant(
    "web-c1-eth0",
    '{"kind":"cniCacheV1","containerId":"c1","ifName":"eth0","networkName":"web","capabilityArgs":{"n":12345678901234567890}}',
  );
  replaceEntry(directory, findEntry(directory, key)!);
  expect(readFileSync(join(directory, "results/web-c1-eth0"), "utf8")).toContain('{"n":12345678901234567890}');
});

test("createEntry() leaves an entry that is there, replaceEntry() does not", () => {
  expect(createEntry(directory, bare)).toBe(true);
  expect(createEntry(directory, full)).toBe(false);
  expect(findEntry(directory, key)).toEqual(bare);
  replaceEntry(directory, full);
  expect(findEntry(directory, key)).toEqual(full);
});

test("findEntry() finds nothing where nothing is", () => {
  expect(findEntry(directory, key)).toBeUndefined();
  expect(listCacheEntries(directory)).toEqual([]);
});

test("findEntry() takes a file of the oldest format for a result", () => {
  plant("web-c1-eth0", '{"cniVersion":"0.3.1","ips":[]}');
  expect(findEntry(directory, key)).toEqual({
    ...key,
    config: "",
    args: [],
    capabilityArgs: {},
    result: { cniVersion: "0.3.1", ips: [] },
  });
  expect(listCacheEntries(directory)).toEqual([]);
});

test.each([
  ["nothing", ""],
  ["a torn file", '{"kind":"cniCacheV1","containerId":"c1","conf'],
  ["no object", "[]"],
  ["another kind", '{"kind":"cniCacheV9"}'],
  ["no ids", '{"kind":"cniCacheV1"}'],
  ["wrong base64", '{"kind":"cniCacheV1","containerId":"c1","ifName":"eth0","networkName":"web","config":"*"}'],
  ["a NUL", '{"kind":"cniCacheV1","containerId":"c1","ifName":"eth0","networkName":"web","netns":"/a\\u0000"}'],
  [
    "a NUL in arguments",
    '{"kind":"cniCacheV1","containerId":"c1","ifName":"eth0","networkName":"web","cniArgs":[["a","\\u0000"]]}',
  ],
  [
    "an entry nested too deep",
    `{"kind":"cniCacheV1","containerId":"c1","ifName":"eth0","networkName":"web","result":${"[".repeat(5000)}${
      "]".repeat(5000)
    }}`,
  ],
  ["wrong arguments", '{"kind":"cniCacheV1","containerId":"c1","ifName":"eth0","networkName":"web","cniArgs":5}'],
])("findEntry() refuses %s, and removeEntry() removes it", (_, text) => {
  plant("web-c1-eth0", text);
  const error = errorOfCall(() => findEntry(directory, key));
  expect(error.code).toBe(6);
  expect(error.message).toContain(`${directory}/results/web-c1-eth0`);
  expect(listCacheEntries(directory)).toEqual([]);
  removeEntry(directory, key, () => {});
  expect(readdirSync(join(directory, "results"))).toEqual([]);
});

test("an entry of another attachment with the same file name is neither found nor removed", () => {
  const one = { ...bare, network: "a-b", containerId: "c" };
  const other = { ...key, network: "a", containerId: "b-c" };
  createEntry(directory, one);
  expect(findEntry(directory, other)).toBeUndefined();
  expect(findOccupant(directory, other)).toEqual(one);
  removeEntry(directory, other, () => {});
  expect(findEntry(directory, one)).toEqual(one);
});

test("removeEntry() succeeds when there is nothing", () => {
  removeEntry(directory, key, () => {});
  createEntry(directory, bare);
  removeEntry(directory, key, () => {});
  removeEntry(directory, key, () => {});
  expect(findEntry(directory, key)).toBeUndefined();
});

test("listCacheEntries() passes over a copy of a file, which is not the attachment's", () => {
  createEntry(directory, { ...key, config: "", args: [], capabilityArgs: {} });
  const text = readFileSync(join(directory, "results/web-c1-eth0"), "utf8");
  plant("web-c1-eth0.bak", text);
  plant("web-c2-eth0", text);
  expect(listCacheEntries(directory)).toHaveLength(1);
});

test("listCacheEntries() gives the attachments of a network by file name, and not those of one whose name is longer", () => {
  const entries = [
    { ...bare, containerId: "c2" },
    { ...bare, containerId: "c1", ifname: "eth1" },
    { ...bare, containerId: "c1" },
    { ...bare, network: "web-2", containerId: "c1" },
  ];
  for (const entry of entries) createEntry(directory, entry);
  plant("web-torn-eth0", "{");
  expect(listCacheEntries(directory, "web")).toMatchObject([entries[2]!, entries[1]!, entries[0]!]);
  expect(listCacheEntries(directory)).toHaveLength(4);
});

test("findEntryAgain() reads an entry that was listed only if its file has changed since", () => {
  createEntry(directory, bare);
  const [listed] = listCacheEntries(directory);
  const copy = { ...listed! };
  expect(findEntryAgain(directory, copy)).toBe(copy);
  replaceEntry(directory, { ...bare, config: "{ }" });
  expect(findEntryAgain(directory, copy)).toEqual({ ...bare, config: "{ }" });
  expect(findEntryAgain(directory, bare)).toEqual({ ...bare, config: "{ }" });
  removeEntry(directory, key, () => {});
  expect(findEntryAgain(directory, copy)).toBeUndefined();
});

test("listCacheEntries() passes over what a crash left of replacing an entry: it is no further attachment", () => {
  createEntry(directory, full);
  plant(".web-c1-eth0.0.tmp", readFileSync(cachePath(directory, full), "utf8"));
  expect(listCacheEntries(directory)).toHaveLength(1);
});

test("createEntry() refuses names that do not fit into a file name before anything is written", () => {
  const error = errorOfCall(() => createEntry(directory, { ...bare, containerId: "c".repeat(300) }));
  expect(error.code).toBe(4);
  expect(error.message).toContain("307 bytes together, and 253 fit");
  expect(createEntry(directory, { ...bare, containerId: "c".repeat(255 - "web--eth0".length) })).toBe(true);
});

const anything = fc.oneof(
  fc.string({ unit: "binary", maxLength: 20 }),
  fc.constantFrom("..", ".", "../..", "/", "a/../../b", "\0", "", "x/../../../victim", "..\0"),
  fc.stringMatching(/^[a-z0-9._/-]{0,12}$/),
);

test("cachePath() never leads out of the directory, whatever the ids are", () => {
  fc.assert(
    fc.property(anything, anything, anything, (network, containerId, ifname) => {
      let path: string;
      try {
        path = cachePath("/cache", { network, containerId, ifname });
      } catch (error) {
        return error instanceof CniError && error.code === 4;
      }
      return normalize(path) === path && dirname(path) === "/cache/results" && !path.includes("\0");
    }),
    { numRuns: 2000 },
  );
});

test("removeEntry() removes no file outside of the directory", () => {
  mkdirSync(join(directory, "results/web-x"), { recursive: true });
  const victim = join(directory, "victim-eth0");
  writeFileSync(victim, "");
  expect(errorOfCall(() => removeEntry(directory, { ...key, containerId: "x/../../victim" }, () => {})).code).toBe(4);
  expect(existsSync(victim)).toBe(true);
});

test("what createEntry() writes findEntry() reads, for all that is accepted", () => {
  const text = fc.string({ unit: "grapheme", maxLength: 30 });
  const json = fc.dictionary(text, fc.jsonValue({ maxDepth: 2 })).map((node) =>
    Object.fromEntries(Object.entries(node).sort(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b))))
  );
  fc.assert(
    fc.property(text, json, fc.array(fc.tuple(text, text), { maxLength: 3 }), (config, capabilityArgs, args) => {
      const entry: CacheEntry = {
        ...key,
        config,
        netnsCookie,
        args,
        capabilityArgs: JSON.parse(JSON.stringify(capabilityArgs)),
        written,
      };
      removeEntry(directory, key, () => {});
      createEntry(directory, entry);
      // As text, since -0 is printed as 0.
      expect(JSON.stringify(findEntry(directory, key))).toBe(JSON.stringify(entry));
    }),
    { numRuns: 50 },
  );
});

test("findEntry() says when an entry was written, where another program did not say in which boot", () => {
  const text = (more: object) =>
    JSON.stringify({ kind: "cniCacheV1", containerId: "c1", ifName: "eth0", networkName: "web", ...more });
  plant("web-c1-eth0", text({}));
  const { mtimeNs, ctimeNs } = statSync(join(directory, "results/web-c1-eth0"), { bigint: true });
  expect(findEntry(directory, key)?.written).toEqual({ times: { mtime: mtimeNs, ctime: ctimeNs } });
  // Without the namespace's cookie, only times tell whether another one is at its path.
  plant("web-c1-eth0", text({ bootId: "another" }));
  expect(findEntry(directory, key)?.written).toEqual({ boot: "another", times: expect.anything() });
  plant("web-c1-eth0", text({ bootId: "another", netnsCookie: "5" }));
  expect(findEntry(directory, key)?.written).toEqual({ boot: "another" });
  // Somebody else's key of that name must not make the entry useless.
  plant("web-c1-eth0", text({ bootId: 5 }));
  expect(findEntry(directory, key)?.written).toHaveProperty("times");
});

test("what the disk does not tell for the moment makes no entry a damaged one", () => {
  const path = cachePath(directory, key);
  createEntry(directory, full);
  writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, "utf8")), bootId: undefined }));
  using _ = spyOn(status, "findStat").mockImplementation(() => {
    throw new SystemError("open", 5, "find");
  });
  expect(() => findEntry(directory, key)).toThrow(SystemError);
});
