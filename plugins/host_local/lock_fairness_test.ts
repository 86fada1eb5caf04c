/** Whoever asks for the lock of a network first gets it first, also beside the reference plugin. */
import { expect } from "bun:test";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ENGINE_ENV, pluginLink, testWith } from "../../testing/binary.ts";
import { lockFile } from "../../ffi/sys/lock.ts";

const REFERENCE = "/usr/lib/cni/host-local";
const COUNT = 64;

/** Until so many wait for the lock. */
async function waiters(path: string, count: number): Promise<void> {
  const { ino } = statSync(path);
  const isWaiting = new RegExp(`-> FLOCK .*:${ino} `, "g");
  const deadline = performance.now() + 50_000;
  while ((readFileSync("/proc/locks", "utf8").match(isWaiting)?.length ?? 0) < count) {
    if (performance.now() > deadline) throw new Error(`${count} do not wait`);
    await Bun.sleep(1);
  }
}

testWith(
  [REFERENCE],
  `${COUNT} that wait, every second of them the reference plugin, get their turn in order`,
  async () => {
    const directory = mkdtempSync(join(tmpdir(), "cni-fairness-"));
    mkdirSync(`${directory}/web`);
    const lock = lockFile(`${directory}/web/lock`, { timeoutMs: 0 });
    const ipam = { type: "host-local", dataDir: directory, ranges: [[{ subnet: "10.9.0.0/24" }]] };
    const stdin = new Blob([JSON.stringify({ cniVersion: "1.0.0", name: "web", ipam })]);
    const children: Bun.Subprocess<Blob, "pipe", "ignore">[] = [];
    for (let i = 0; i < COUNT; i++) {
      const env = { ...ENGINE_ENV, CNI_COMMAND: "ADD", CNI_CONTAINERID: `c${i}` };
      const program = i % 2 === 0 ? pluginLink("host-local") : REFERENCE;
      children.push(Bun.spawn([program], { env, stdin, stdout: "pipe", stderr: "ignore" }));
      await waiters(`${directory}/web/lock`, i + 1);
    }
    lock[Symbol.dispose]();
    // Addresses are given in order.
    const turns = await Promise.all(
      children.map(async ({ stdout }) =>
        parseInt((await new Response(stdout).json()).ips[0].address.split(".")[3]) - 2
      ),
    );
    rmSync(directory, { recursive: true });
    expect(turns.toSorted((a, b) => a - b)).toEqual(Array.from({ length: COUNT }, (_, i) => i));
    // A waiter that its runtime interrupts, as for a collection of garbage, queues again: those behind it come first.
    expect(turns.filter((turn, i) => turn - i > 3)).toEqual([]);
    expect(turns.filter((turn, i) => turn !== i).length).toBeLessThan(8);
  },
);
