/**
 * Many processes on one directory, and processes that die in the middle.
 *
 * @module
 */
import { expect, test } from "bun:test";
import { join } from "node:path";
import { newHostLocalNetwork } from "../../testing/host_local.ts";
import { expectIndexMatchesDirectory } from "../../testing/host_local_index.ts";
import { straced } from "../../testing/strace.ts";

const testing = join(import.meta.dir, "../../testing/host_local.ts");

/** A program that opens the same network and runs `body` with `net`. */
function program(ipam: object, dataDir: string, body: string): string[] {
  const open = `newHostLocalNetwork(${JSON.stringify(ipam)}, ${JSON.stringify(dataDir)})`;
  return [
    process.execPath,
    "-e",
    `import { newHostLocalNetwork } from ${JSON.stringify(testing)}; const net = ${open}; ${body}`,
  ];
}

test("8 processes with 50 ADDs each get 400 addresses, no two of them the same", async () => {
  const ipam = { ranges: [[{ subnet: "10.0.0.0/22" }], [{ subnet: "fd00::/64" }]] };
  using net = newHostLocalNetwork(ipam);
  const workers = Array.from({ length: 8 }, (_, worker) => {
    const body = `for (let i = 0; i < 50; i++) {
      const { ips } = net.call("ADD", { id: "w${worker}-" + i });
      if (i % 5 === 0) { net.call("DEL", { id: "w${worker}-" + i }); net.call("ADD", { id: "w${worker}-" + i }); }
      console.log(ips.length);
    }
    if (net.log.length > 0) throw new Error(net.log.join());`;
    return Bun.spawn(program(ipam, net.dataDir, body), { stdout: "pipe", stderr: "inherit" });
  });
  for (const worker of workers) {
    expect(await worker.exited).toBe(0);
    expect(await new Response(worker.stdout).text()).toBe("2\n".repeat(50));
  }
  const files = Object.entries(net.files());
  for (const family of [".", ":"]) {
    const holders = files.filter(([name]) => /^[\da-f.:]+$/.test(name) && name.includes(family)).map(([, text]) =>
      text
    );
    expect(holders).toHaveLength(400);
    expect(new Set(holders).size).toBe(400);
  }
}, 60_000);

// The calls of reserve() and release() in order; the process is killed on its way into each of them.
const CRASHES: [string, number][] = [["flock", 1], ["link", 1], ["link", 2], ["link", 3]];
for (let i = 1; i <= 2; i++) CRASHES.push(["rename", i]);
for (let i = 1; i <= 3; i++) CRASHES.push(["unlink", i]);

for (const [call, when] of CRASHES) {
  test.skipIf(!Bun.which("strace"))(`killed at ${call} ${when}, ADD and DEL leave whole reservations or none`, () => {
    const ipam = { ranges: [[{ subnet: "10.0.0.0/30" }], [{ subnet: "fd00::/126", rangeEnd: "fd00::2" }]] };
    using net = newHostLocalNetwork(ipam);
    const inject = `inject=/^${call}(at)?$:signal=KILL:when=${when}`;
    const command = program(ipam, net.dataDir, `net.call("ADD"); net.call("DEL");`);
    const killed = Bun.spawnSync([...straced("/dev/null", inject), ...command], { stderr: "pipe" });
    expect(`${killed.stderr}`).toBe("");
    expect(killed.signalCode).toBe("SIGKILL");
    for (const [name, content] of Object.entries(net.files())) {
      if (/^(10|fd)/.test(name)) expect(content).toBe("c1\r\neth0");
      if (name.startsWith("last_reserved_ip.")) expect(content).toMatch(/^(10\.0\.0\.2|fd00::2)$/);
    }
    expectIndexMatchesDirectory(net.directory, "10.0.0.0", 5);
    // What a runtime does after a failed ADD; then the only address of each set has to be free.
    net.call("DEL");
    expect(net.add("c2")).toBe("10.0.0.2");
    expect(net.log).toEqual([]);
    net.call("DEL", { id: "c2" });
    expect(Object.keys(net.files()).filter((name) => /^(10|fd)/.test(name))).toEqual([]);
  });
}
