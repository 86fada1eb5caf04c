import { afterEach, expect, test } from "bun:test";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Ip, parseIp } from "../../ffi/address.ts";
import { CniError } from "../../spec/error.ts";
import { addressesHeldBy, readInventory } from "./inventory.ts";
import { listFileNames } from "../../testing/host_local.ts";
import { lockStore, prepareReservation } from "./reservation_store.ts";

const directories: string[] = [];
afterEach(() => directories.splice(0).forEach((each) => rmSync(each, { recursive: true })));

/** A directory with these files. */
function directoryWith(files: Record<string, string> = {}): string {
  const parent = mkdtempSync(join(tmpdir(), "cni-test-"));
  directories.push(parent);
  const directory = join(parent, "net");
  mkdirSync(directory);
  for (const [name, content] of Object.entries(files)) writeFileSync(join(directory, name), content);
  return directory;
}

const ip = parseIp;
const c1 = { containerId: "c1", ifname: "eth0" };
const c2 = { containerId: "c2", ifname: "eth0" };
const content = (directory: string, name: string) => readFileSync(join(directory, name), "utf8");

function reserve(directory: string, attachment: typeof c1, ...addresses: Ip[]): void {
  using reservation = prepareReservation(directory, attachment);
  using store = lockStore(directory, () => {});
  store.reserve(reservation, addresses);
}

/** Locks and unlocks; gives what was said. */
function recover(directory: string): string[] {
  const log: string[] = [];
  lockStore(directory, (message) => void log.push(message))[Symbol.dispose]();
  return log;
}

test("reserve() writes the bytes that the reference plugin writes", () => {
  const directory = directoryWith();
  reserve(directory, c1, ip("10.0.0.2"), ip("2001:DB8:0::2"));
  expect(listFileNames(directory)).toEqual([
    ".c1:eth0",
    "10.0.0.2",
    "2001:db8::2",
    "last_reserved_ip.0",
    "last_reserved_ip.1",
    "lock",
  ]);
  expect(content(directory, "10.0.0.2")).toBe("c1\r\neth0");
  expect(content(directory, "2001:db8::2")).toBe("c1\r\neth0");
  expect(content(directory, "last_reserved_ip.0")).toBe("10.0.0.2");
  expect(content(directory, "last_reserved_ip.1")).toBe("2001:db8::2");
  expect(statSync(join(directory, "10.0.0.2")).mode & 0o777).toBe(0o600);
});

test("reserve() holds nothing of a reservation that cannot be whole", () => {
  const directory = directoryWith({ "10.0.1.2": "c9\r\neth0" });
  expect(() => reserve(directory, c1, ip("10.0.0.2"), ip("10.0.1.2"))).toThrow(
    `Cannot reserve address 10.0.1.2: "${directory}/10.0.1.2" appeared while "${directory}/lock" was locked`,
  );
  expect(readdirSync(directory).sort()).toEqual(["10.0.1.2", "lock"]);
});

test("a reservation that gets no address leaves nothing", () => {
  const directory = directoryWith();
  prepareReservation(directory, c1)[Symbol.dispose]();
  expect(readdirSync(directory)).toEqual([]);
});

test("release() takes the second name away with the last address, not before", () => {
  const directory = directoryWith();
  reserve(directory, c1, ip("10.0.0.2"), ip("fd00::2"));
  reserve(directory, c2, ip("10.0.0.3"));
  const release = (address: Ip) => {
    using store = lockStore(directory, () => {});
    store.release(store.findByAttachment(c1).filter((each) => each.address === address));
  };
  release(ip("10.0.0.2"));
  expect(listFileNames(directory)).toContain(".c1:eth0");
  release(ip("fd00::2"));
  const names = listFileNames(directory).filter((name) => !name.startsWith("l")).sort();
  expect(names).toEqual([".c2:eth0", "10.0.0.3"]);
});

test("readInventory() reads what others wrote, and what it cannot read is taken", () => {
  const directory = directoryWith({
    "10.0.0.2": "c1\r\neth0",
    "10.0.0.3": "  c1\n",
    "10.0.0.4": "c2\neth1\r\n",
    "10.0.0.05": "c3\r\neth0",
    "fd00::0:2": "c3\r\neth0",
    "notes.txt": "c3\r\neth0",
    "last_reserved_ip.0": "10.0.0.4",
  });
  mkdirSync(join(directory, "10.0.0.6"));
  symlinkSync("nowhere", join(directory, "10.0.0.7"));
  const { holders, corrupt, orphans, temporaryFiles } = readInventory(directory);
  expect(Object.fromEntries(holders)).toEqual({
    "10.0.0.2": { containerId: "c1", ifname: "eth0" },
    "10.0.0.3": { containerId: "c1" },
    "10.0.0.4": { containerId: "c2", ifname: "eth1" },
    "10.0.0.6": undefined,
    "10.0.0.7": undefined,
  });
  expect([corrupt, orphans, temporaryFiles]).toEqual([[], [], []]);
});

test("readInventory() gives the same with second names and without", () => {
  const directory = directoryWith();
  reserve(directory, c1, ip("10.0.0.2"), ip("fd00::2"));
  reserve(directory, { containerId: "c1", ifname: "net1.5" }, ip("10.0.0.3"));
  reserve(directory, { containerId: "x".repeat(240), ifname: "eth0" }, ip("10.0.0.4"));
  const wanted = readInventory(directory).holders;
  expect(wanted.size).toBe(4);
  for (const name of readdirSync(directory)) if (name.startsWith(".")) rmSync(join(directory, name));
  expect(Object.fromEntries(readInventory(directory).holders)).toEqual(Object.fromEntries(wanted));
});

test("readInventory() opens none of our own reservations", () => {
  const directory = directoryWith();
  reserve(directory, c1, ip("10.0.0.2"));
  // Content that would be read as another holder, if it were read.
  writeFileSync(join(directory, "10.0.0.2"), "c7\r\neth7");
  expect<object | undefined>(readInventory(directory).holders.get(ip("10.0.0.2"))).toEqual(c1);
});

test("readInventory() of no directory is empty", () => {
  expect(readInventory("/nonexistent/net").holders.size).toBe(0);
});

test("addressesOf() falls back to files without an interface only if there are no others", () => {
  const directory = directoryWith({ "10.0.0.2": "c1\r\neth0", "10.0.0.3": "c1", "10.0.0.4": "c2" });
  const inventory = readInventory(directory);
  const of = (containerId: string, ifname: string): string[] => addressesHeldBy(inventory, { containerId, ifname });
  expect(of("c1", "eth0")).toEqual(["10.0.0.2"]);
  expect(of("c1", "eth1")).toEqual(["10.0.0.3"]);
  expect(of("c2", "eth0")).toEqual(["10.0.0.4"]);
  expect(of("c", "eth0")).toEqual([]);
});

for (
  const [junk, found] of [
    ["", "it is empty"],
    ["\0\0\0\0", 'it holds "\\u0000\\u0000\\u0000\\u0000"'],
    ["{}", 'it holds "{}"'],
    ["c1\r\neth0\r\nmore", 'it holds "c1\\r\\neth0\\r\\nmore"'],
    ["c1\r\na/b", 'it holds "c1\\r\\na/b"'],
  ] as const
) {
  test(`lockStore() frees an address whose file holds ${JSON.stringify(junk)} and says so`, () => {
    const directory = directoryWith({
      "10.0.0.2": junk,
      "fd00::2": "c1\r\neth0",
      "not-an-ip": junk,
      "10.0.0.02": junk,
    });
    expect(recover(directory)).toEqual([
      `Recovered address 10.0.0.2: "${directory}/10.0.0.2" named no container, ${found}`,
    ]);
    expect(readdirSync(directory).sort()).toEqual(["10.0.0.02", "fd00::2", "lock", "not-an-ip"]);
    expect(recover(directory)).toEqual([]);
  });
}

test("lockStore() removes second names without an address, but no file of others", () => {
  const directory = directoryWith({ ".c1:eth0": "c1\r\neth0", ".c2:eth0": "something else", ".hidden": "" });
  expect(recover(directory)).toEqual([]);
  expect(readdirSync(directory).sort()).toEqual([".c2:eth0", ".hidden", "lock"]);
});

test("lockStore() removes temporary files once their writer cannot be alive any more", () => {
  const directory = directoryWith({ ".new.abc.tmp": "c1\r\neth0", ".new.def.tmp": "c2\r\neth0", ".mine.tmp": "" });
  const longAgo = Date.now() / 1000 - 3600;
  utimesSync(join(directory, ".new.abc.tmp"), longAgo, longAgo);
  utimesSync(join(directory, ".mine.tmp"), longAgo, longAgo);
  expect(recover(directory)).toEqual([
    `Removed "${directory}/.new.abc.tmp": its writer ended without removing it`,
  ]);
  expect(readdirSync(directory).sort()).toEqual([".mine.tmp", ".new.def.tmp", "lock"]);
});

for (const junk of ["", "10.0.0.2\n", "garbage"]) {
  test(`findLastReserved() takes ${JSON.stringify(junk)} for none and says so`, () => {
    const directory = directoryWith({ "last_reserved_ip.0": junk });
    const log: string[] = [];
    using store = lockStore(directory, (message) => void log.push(message));
    expect(store.findLastReserved(0)).toBeUndefined();
    expect(log).toEqual([
      `Starting at the first address: "${directory}/last_reserved_ip.0" holds no address but ${JSON.stringify(junk)}`,
    ]);
    expect([store.findLastReserved(1), log.length]).toEqual([undefined, 1]);
  });
}

test("lockStore() gives up in time and names who holds the lock", async () => {
  const directory = directoryWith({ lock: "" });
  const other = Bun.spawn(["flock", join(directory, "lock"), "sh", "-c", "echo locked; read line"], {
    stdin: "pipe",
    stdout: "pipe",
  });
  try {
    await other.stdout.getReader().read();
    let error: unknown;
    const started = performance.now();
    try {
      lockStore(directory, () => {}, { timeoutMs: 50 })[Symbol.dispose]();
    } catch (thrown) {
      error = thrown;
    }
    expect(performance.now() - started).toBeGreaterThanOrEqual(50);
    expect(error).toBeInstanceOf(CniError);
    expect(error).toMatchObject({
      code: 11,
      message: `Cannot lock "${directory}/lock": it is held by process ${other.pid} ("flock")`,
    });
  } finally {
    other.stdin.end();
    await other.exited;
  }
  expect(recover(directory)).toEqual([]);
});
