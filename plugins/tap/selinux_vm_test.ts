/** Taps of an SELinux context, on a kernel that has SELinux. It has no policy there, and so knows the contexts of its own beginnings only. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { newNamespaces, runInNetns } from "../../testing/netns.ts";
import { createLabelledTap } from "./labelled_tap.ts";

const directory = mkdtempSync(join(tmpdir(), "cni-test-"));
const before = process.cwd();

beforeAll(() => {
  Bun.spawnSync(["modprobe", "tun"]);
  // The program of a test is Bun, which takes the word for that of a file to run.
  const command = JSON.stringify(join(import.meta.dir, "../../cmd/commands/tap_device.ts"));
  writeFileSync(
    join(directory, "tap-device.ts"),
    `import { readFileSync, writeFileSync } from "node:fs";
     import { tapDevice } from ${command};
     writeFileSync("context", readFileSync("/proc/self/attr/current", "utf8"));
     tapDevice(process.argv[2]!);`,
  );
  process.chdir(directory);
});
afterAll(() => {
  process.chdir(before);
  rmSync(directory, { recursive: true });
});

/** What the kernel knows of a context, without the NUL that it may end with. */
const contextIn = (path: string): string => readFileSync(path, "utf8").replace(/\0$/, "");

test("a tap is made by a program in the context, and what is started later is in the usual one", () => {
  using namespaces = newNamespaces();
  const { container } = namespaces;
  const own = contextIn("/proc/thread-self/attr/current");
  container.run(() =>
    createLabelledTap("unlabeled", { name: "tap0", owner: 4_000_000_000, group: 4_000_000_001, multiQueue: true })
  );
  expect(contextIn("context")).toBe("unlabeled");
  const [{ linkinfo }] = JSON.parse(runInNetns(container, "ip", "-N", "-j", "-d", "link", "show", "tap0"));
  expect(linkinfo.info_data).toMatchObject({
    type: "tap",
    persist: true,
    multi_queue: true,
    user: 4_000_000_000,
    group: 4_000_000_001,
  });
  expect(own).not.toBe("unlabeled");
  expect(contextIn("/proc/thread-self/attr/current")).toBe(own);
  expect(contextIn("/proc/thread-self/attr/exec")).toBe("");
  expect(Bun.spawnSync(["cat", "/proc/self/attr/current"]).stdout.toString().replace(/\0$/, "")).toBe(own);
});

test("what the program was refused is told", () => {
  using namespaces = newNamespaces();
  const { container } = namespaces;
  const make = (context: string) => container.run(() => createLabelledTap(context, { name: "tap0" }));
  make("unlabeled");
  expect(() => make("unlabeled")).toThrow('Cannot create tap "tap0" in SELinux context "unlabeled"');
});
