/**
 * The index when its making is stopped anywhere, when a system call fails, and when other programs work on the directory.
 *
 * @module
 */
import { expect, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type HostLocalNetwork, newHostLocalNetwork } from "../../testing/host_local.ts";
import { expectIndexMatchesDirectory, isIndexCurrent } from "../../testing/host_local_index.ts";

const IPAM = { ranges: [[{ subnet: "10.0.0.0/26" }], [{ subnet: "fd00::/64" }]] };
const REFERENCE = "/usr/lib/cni/host-local";
const traceTest = test.skipIf(!Bun.which("strace"));
const peerTest = test.skipIf(!existsSync(REFERENCE));

/** Arguments of a program that runs `body` with the network. */
function program(net: HostLocalNetwork, body: string): string[] {
  const testing = JSON.stringify(join(import.meta.dir, "../../testing/host_local.ts"));
  const open = `newHostLocalNetwork(${JSON.stringify(IPAM)}, ${JSON.stringify(net.dataDir)})`;
  return [process.execPath, "-e", `import { newHostLocalNetwork } from ${testing}; const net = ${open}; ${body}`];
}

function traced(net: HostLocalNetwork, options: string[], body: string) {
  return Bun.spawnSync(["strace", "-f", "-o", "/dev/null", ...options, ...program(net, body)], { stderr: "pipe" });
}

for (const before of ["an index", "none"]) {
  for (const call of ["utimensat", "pwrite64", "linkat", "unlink"]) {
    traceTest(
      `killed at any ${call} of ADD and DEL, with ${before} before, the next one knows what is reserved`,
      () => {
        let killed = 0;
        for (let when = 1;; when++) {
          using net = newHostLocalNetwork(IPAM);
          for (const id of ["a", "b"]) net.add(id);
          const index = join(net.dataDir, ".net.index");
          if (before === "none") rmSync(index);
          const { signalCode, exitCode } = traced(
            net,
            ["-e", `inject=${call}:signal=KILL:when=${when}`],
            `net.call("ADD", { id: "x" }); net.call("DEL", { id: "a" });`,
          );
          expectIndexMatchesDirectory(net.directory, "10.0.0.0", 10);
          net.call("DEL", { id: "x" });
          expectIndexMatchesDirectory(net.directory, "10.0.0.0", 10);
          expect(Object.values(net.files())).not.toContain("x\r\neth0");
          if (exitCode === 0) break;
          expect(signalCode).toBe("SIGKILL");
          killed++;
        }
        expect(killed).toBeGreaterThan(1);
      },
    );
  }
}

const FAILURES: [what: string, options: (net: HostLocalNetwork) => string[]][] = [
  ["no room for the index", () => ["-e", "inject=pwrite64:error=ENOSPC"]],
  ["no room for a part of it", () => ["-e", "inject=pwrite64:error=ENOSPC:when=2"]],
  [
    "a disk that cannot be read",
    ({ dataDir }) => ["-P", `${dataDir}/.net.index`, "-e", "inject=pread64:error=EIO:when=2+"],
  ],
  ["a directory of another owner", () => ["-e", "inject=utimensat:error=EPERM"]],
  ["a read-only place beside it", ({ dataDir }) => ["-P", `${dataDir}/.net.index`, "-e", "inject=openat:error=EROFS"]],
  [
    "a file system without unnamed files",
    ({ directory }) => ["-P", directory, "-e", "inject=openat:error=EOPNOTSUPP:when=1"],
  ],
];
for (const [what, options] of FAILURES) {
  for (const before of ["an index", "none"]) {
    traceTest(`with ${what}, and ${before} before, ADD and DEL do their work`, () => {
      using net = newHostLocalNetwork(IPAM);
      for (const id of ["a", "b"]) net.add(id);
      if (before === "none") rmSync(join(net.dataDir, ".net.index"));
      const body = `net.call("ADD", { id: "x" }); net.call("DEL", { id: "a" });`;
      const { exitCode, stderr } = traced(net, options(net), body);
      expect([exitCode, stderr.toString()]).toEqual([0, ""]);
      const names = net.names().filter((name) => !name.startsWith("l"));
      expect(names).toEqual([".b:eth0", ".x:eth0", "10.0.0.3", "10.0.0.4", "fd00::3", "fd00::4"]);
      expectIndexMatchesDirectory(net.directory, "10.0.0.0", 10);
      expect(isIndexCurrent(net.directory)).toBe(true);
    });
  }
}

/** Starts the reference plugin. */
function reference(net: HostLocalNetwork, verb: string, id: string) {
  const ipam = { type: "host-local", dataDir: net.dataDir, ...IPAM };
  return Bun.spawn([REFERENCE], {
    env: { CNI_COMMAND: verb, CNI_CONTAINERID: id, CNI_IFNAME: "eth0", CNI_NETNS: "/netns", CNI_PATH: "/usr/lib/cni" },
    stdin: new TextEncoder().encode(JSON.stringify({ cniVersion: "1.0.0", name: "net", type: "bridge", ipam })),
    stdout: "pipe",
  });
}

peerTest("this plugin and the reference in turn: the next address, no second one, and nothing left", async () => {
  using net = newHostLocalNetwork(IPAM);
  for (let round = 0; round < 3; round++) {
    for (let i = 0; i < 8; i++) {
      const id = `${round}-${i}`;
      if (i % 3 === 0) expect(await reference(net, "ADD", id).exited).toBe(0);
      else net.add(id);
      expect(net.files()["last_reserved_ip.0"]).toBe(`10.0.0.${2 + round * 8 + i}`);
      if (i % 3 === 1) expectIndexMatchesDirectory(net.directory, "10.0.0.0", 30);
    }
    // Each deletes what either added.
    for (let i = 0; i < 8; i++) {
      const id = `${round}-${i}`;
      if (i % 2 === 0) expect(await reference(net, "DEL", id).exited).toBe(0);
      else net.call("DEL", { id });
      expect(Object.values(net.files())).not.toContain(`${id}\r\neth0`);
    }
  }
  expect(net.names()).toEqual(["last_reserved_ip.0", "last_reserved_ip.1", "lock"]);
});

peerTest("this plugin and the reference at once: no address twice, and nothing left", async () => {
  using net = newHostLocalNetwork(IPAM);
  mkdirSync(net.directory);
  writeFileSync(join(net.directory, "lock"), "");
  const body = (worker: string) =>
    `for (let i = 0; i < 60; i++) {
      const id = "${worker}-" + i % 4;
      const { ips } = net.call("ADD", { id });
      console.log(ips[0].address);
      if (i < 56) net.call("DEL", { id });
    }`;
  const ours = ["a", "b"].map((worker) => Bun.spawn(program(net, body(worker)), { stdout: "pipe", stderr: "inherit" }));
  const theirs = ["c", "d"].map(async (worker) => {
    for (let i = 0; i < 30; i++) {
      const id = `${worker}-${i % 4}`;
      expect(await reference(net, "ADD", id).exited).toBe(0);
      if (i < 26) expect(await reference(net, "DEL", id).exited).toBe(0);
    }
  });
  await Promise.all(theirs);
  for (const each of ours) expect(await each.exited).toBe(0);
  // What each kept are its last four.
  const files = readdirSync(net.directory).filter((name) => name.startsWith("10.0.0."));
  const holders = files.map((name) => readFileSync(join(net.directory, name), "utf8"));
  expect(holders.sort()).toEqual([..."abcd"].flatMap((worker) => [0, 1, 2, 3].map((i) => `${worker}-${i}\r\neth0`)));
  expectIndexMatchesDirectory(net.directory, "10.0.0.0", 64);
  for (const [i, holder] of holders.entries()) {
    const id = holder.split("\r")[0]!;
    if (i % 2 === 0) net.call("DEL", { id });
    else await reference(net, "DEL", id).exited;
  }
  expect(net.names()).toEqual(["last_reserved_ip.0", "last_reserved_ip.1", "lock"]);
}, 60_000);
