/**
 * What ADD and DEL cost when there are many reservations, in system calls and bytes: the same as when there are few.
 *
 * @module
 */
import { afterAll, expect, test } from "bun:test";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { newHostLocalNetwork } from "../../testing/host_local.ts";
import { isIndexCurrent } from "../../testing/host_local_index.ts";

const IPAM = { ranges: [[{ subnet: "10.0.0.0/16" }]] };
// In memory if possible: the files are many, and what the disk does is not asked here.
const root = mkdtempSync(join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "cni-test-"));
afterAll(() => rmSync(root, { recursive: true }));

/** A network with reservations that others made, and an index of them. */
function networkOf(count: number): string {
  const dataDir = join(root, `${count}`);
  mkdirSync(join(dataDir, "net"), { recursive: true });
  for (let i = 0; i < count; i++) {
    const address = `10.0.${(i + 2) >> 8}.${(i + 2) & 255}`;
    writeFileSync(join(dataDir, "net", address), `container-${i}\r\neth0`, { mode: 0o600 });
    if (i === count - 1) writeFileSync(join(dataDir, "net", "last_reserved_ip.0"), address);
  }
  newHostLocalNetwork(IPAM, dataDir).call("DEL", { id: "nobody" });
  expect(isIndexCurrent(join(dataDir, "net"))).toBe(true);
  return dataDir;
}

/** How often each system call is made by an ADD and the DEL of it, and how many bytes they read. */
function costs(dataDir: string): { calls: Record<string, number>; bytesRead: number } {
  const marker = join(dataDir, "marker");
  const open = `newHostLocalNetwork(${JSON.stringify(IPAM)}, ${JSON.stringify(dataDir)})`;
  const body = `import { existsSync } from "node:fs";
    import { newHostLocalNetwork } from ${
    JSON.stringify(join(import.meta.dir, "../../testing/host_local.ts"))
  }; const net = ${open};
    net.call("ADD", { id: "warm" }); net.call("DEL", { id: "warm" });
    existsSync(${JSON.stringify(marker)}); net.call("ADD", { id: "x" });
    net.call("DEL", { id: "x" }); existsSync(${JSON.stringify(marker)});`;
  const output = join(root, "trace");
  const { exitCode } = Bun.spawnSync([
    "strace",
    "-f",
    "-o",
    output,
    "-e",
    "trace=file,desc",
    process.execPath,
    "-e",
    body,
  ]);
  expect(exitCode).toBe(0);
  const part = readFileSync(output, "utf8").split(`"${marker}"`)[1]!;
  const calls: Record<string, number> = {};
  let bytesRead = 0;
  for (const [, name, result] of part.matchAll(/^\d+ +(\w+)\(.*\) += (-?\d+)/gm)) {
    if (name === "mmap" || name === "madvise") continue;
    calls[name!] = (calls[name!] ?? 0) + 1;
    if (name === "read" || name === "pread64" || name === "getdents64") bytesRead += Number(result);
  }
  return { calls, bytesRead };
}

test.skipIf(!Bun.which("strace"))(
  "60,000 reservations cost ADD and DEL no more system calls and bytes than 10 do",
  () => {
    const few = costs(networkOf(10));
    const many = costs(networkOf(60_000));
    expect(many.calls).toEqual(few.calls);
    // Lengths of names and addresses differ.
    expect(Math.abs(many.bytesRead - few.bytesRead)).toBeLessThan(100);
    expect(many.bytesRead).toBeLessThan(20_000);
    expect(many.calls).not.toHaveProperty("getdents64");
    const count = Object.values(many.calls).reduce((sum, each) => sum + each);
    expect(count).toBeLessThan(56);
  },
  60_000,
);
