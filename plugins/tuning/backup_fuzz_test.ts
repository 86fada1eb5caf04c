/** Files of state that somebody else wrote or put there: what they name is not touched. */
import { beforeEach, expect, test } from "bun:test";
import fc from "fast-check";
import { lstatSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { useDirectory } from "../../testing/directory.ts";
import { checkProperty, outcomeOf } from "../../testing/fuzz.ts";
import { type Backup, backupPath, findBackup, gcBackups, listOtherBackups, writeBackup } from "./backup.ts";

const root = useDirectory("cni-backup-");
const dataDir = join(root, "tuning");
const attachment = { containerId: "c1", ifname: "eth0" };
const path = backupPath(dataDir, attachment);
const said: string[] = [];
const log = (message: string) => void said.push(message);
beforeEach(() => {
  rmSync(dataDir, { recursive: true, force: true });
  mkdirSync(dataDir);
  said.splice(0);
});

const BACKUP: Backup = {
  before: { mtu: 1500, promisc: false },
  after: { mtu: 1400 },
  sysctl: { "net/core/somaxconn": { before: "4096", after: "500" }, "net/ipv4/conf/eth0.1/forwarding": { after: "1" } },
  owner: { network: "net", containerID: "c1", ifname: "eth0" },
  place: { netns: "4:1", link: 7 },
};

test("a backup is read as it was written", () => {
  writeBackup(path, BACKUP);
  expect(findBackup(path, log)).toEqual(BACKUP);
  expect(lstatSync(path).mode & 0o777).toBe(0o600);
});

test.each([
  "net/../../../etc/passwd",
  "../../etc/passwd",
  "net/ipv4/../../kernel/core_pattern",
  "kernel/core_pattern",
  "/etc/passwd",
  "net",
  "net/",
  "net//core/somaxconn",
  "net/./core/somaxconn",
  "net/core/somaxconn\0",
  "",
])("a backup that names %j is not believed", (parameter) => {
  const sysctl = { [parameter]: { before: "x", after: "y" } };
  writeFileSync(path, JSON.stringify({ sysctl }));
  expect(findBackup(path, log)).toBeUndefined();
  expect(said.join()).toContain('Cannot use "');
});

test("a link in the place of a backup is not followed, and is replaced", () => {
  const target = join(root, "target");
  writeFileSync(target, JSON.stringify({ mtu: 68 }));
  symlinkSync(target, path);
  expect(findBackup(path, log)).toBeUndefined();
  expect(said.join()).toContain("ELOOP");
  writeBackup(path, BACKUP);
  expect(lstatSync(path).isFile()).toBe(true);
  expect(lstatSync(target).size).toBe(10);
});

const text = fc.oneof(
  fc.string({ unit: "binary" }),
  fc.json(),
  fc.tuple(fc.nat(400), fc.string({ maxLength: 3, unit: "grapheme-ascii" })).map(([at, word]) => {
    const whole = JSON.stringify({ ...BACKUP.before, ...BACKUP });
    return whole.slice(0, at) + word + whole.slice(at + 1);
  }),
  fc.record({
    sysctl: fc.dictionary(
      fc.array(fc.constantFrom("net", "..", ".", "", "kernel", "/", "x.1", "\0"), { maxLength: 5 })
        .map((parts) => parts.join("/")),
      fc.record({ before: fc.string(), after: fc.string() }),
      { maxKeys: 2 },
    ),
  }).map((value) => JSON.stringify(value)),
);

test("whatever a file holds, there is a backup of parameters of the network, or none", () => {
  checkProperty(
    fc.property(text, (content) => {
      writeFileSync(path, content);
      writeFileSync(join(dataDir, "c1_eth1.json"), content);
      const found = outcomeOf(() => findBackup(path, log));
      if ("error" in found) throw found.error;
      for (const parameter of Object.keys(found.value?.sysctl ?? {})) {
        expect(resolve("/proc/sys", parameter)).toBe(`/proc/sys/${parameter}`);
        expect(parameter).toStartWith("net/");
      }
      outcomeOf(() => listOtherBackups(dataDir, attachment));
      outcomeOf(() => gcBackups(dataDir, 0n, () => false, () => {}));
      expect(readdirSync(dataDir).length).toBe(2);
    }),
    400,
  );
});
