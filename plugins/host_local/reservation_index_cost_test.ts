/**
 * What ADD and DEL cost when there are many reservations: as many system calls as with few, and 24 bytes read for each reservation.
 *
 * @module
 */
import { afterAll, expect, test } from "bun:test";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { newHostLocalNetwork } from "../../testing/host_local.ts";
import { isIndexCurrent } from "../../testing/host_local_index.ts";
import { straced } from "../../testing/strace.ts";

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
  const { exitCode } = Bun.spawnSync([...straced(output, "trace=file,desc"), process.execPath, "-e", body]);
  expect(exitCode).toBe(0);
  // The runtime looks at its memory now and then: it opens a file, asks for its status, reads and closes it.
  const memoryStatus = /^.*"\/proc\/self\/statm".*\n(.*\n){3}/gm;
  const part = readFileSync(output, "utf8").split(`"${marker}"`)[1]!.replace(memoryStatus, "");
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
  "60,000 reservations cost ADD and DEL no more system calls than 10 do, and 24 bytes each to read",
  () => {
    const few = costs(networkOf(10));
    const many = costs(networkOf(60_000));
    expect(many.calls).toEqual(few.calls);
    // ADD and DEL each read the index. Lengths of names and addresses differ.
    const difference = many.bytesRead - few.bytesRead;
    expect(Math.abs(difference - 2 * 24 * (60_000 - 10))).toBeLessThan(100);
    expect(few.bytesRead).toBeLessThan(5_000);
    expect(many.calls).not.toHaveProperty("getdents64");
    const count = Object.values(many.calls).reduce((sum, each) => sum + each);
    expect(count).toBeLessThan(56);
  },
  60_000,
);
