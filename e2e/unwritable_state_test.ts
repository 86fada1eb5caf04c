/** Where no ADD can write its state, STATUS fails and doctor says so. */
import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { useDirectory } from "../testing/directory.ts";
import { CNI_PROGRAM } from "../testing/binary.ts";

const root = useDirectory("cni-unwritable-");
const state = join(root, "state");
const file = join(root, "10-web.conflist");
const plugins = [{
  type: "bridge",
  bridge: "br9",
  isGateway: true,
  ipam: { type: "host-local", dataDir: `${state}/networks`, ranges: [[{ subnet: "10.9.0.0/24" }]] },
}];
writeFileSync(file, JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins }));

/** How the file system of the state comes to refuse an ADD. */
const FILE_SYSTEMS = {
  "a file system that is read-only": [
    'mount -t tmpfs none "$S"; mkdir "$S/networks"; mount -o remount,ro "$S"',
    "Read-only file system",
  ],
  "a full disk": [
    'mount -t tmpfs -o size=64k none "$S"; dd if=/dev/zero of="$S/fill" bs=4k 2>/dev/null || :',
    "no block is free",
  ],
  "a full disk with a directory of the network": [
    'mount -t tmpfs -o size=64k none "$S"; mkdir -p "$S/networks/web" "$S/results"; ' +
    'dd if=/dev/zero of="$S/fill" bs=4k 2>/dev/null || :',
    "No space left on device",
  ],
  "a disk without inodes": [
    'mount -t tmpfs -o nr_inodes=3 none "$S"; touch "$S/a" "$S/b" "$S/c" 2>/dev/null || :',
    "no inode is free",
  ],
} as const;

/** In a host of its own. */
function run(prepare: string, ...words: string[]): { readonly exitCode: number; readonly out: string } {
  const script = `set -e; S="$0"; mkdir -p "$S"; ${prepare}; exec "$@" --cache-dir "$S" --plugin-dir /nonexistent`;
  const { exitCode, stdout } = Bun.spawnSync(["unshare", "-mn", "sh", "-c", script, state, CNI_PROGRAM, ...words]);
  return { exitCode, out: stdout.toString() };
}

for (const [what, [prepare, reason]] of Object.entries(FILE_SYSTEMS)) {
  test(`${what} is seen by STATUS and by doctor`, () => {
    const status = run(prepare, "run", "status", file, "--json");
    expect([status.exitCode, JSON.parse(status.out).code]).toEqual([1, 50]);
    expect(status.out).toContain(reason);
    const doctor = run(prepare, "doctor", file, "--json");
    const { findings } = JSON.parse(doctor.out).networks[0];
    const broken = findings.filter(({ severity }: { severity: string }) => severity === "broken");
    expect([doctor.exitCode, broken]).toEqual([1, [expect.objectContaining({ check: "STATUS" })]]);
    expect(broken[0].what).toContain(reason);
    // It is as they say.
    const add = run(`${prepare}; mount -t tmpfs none /run; ip netns add x`, "run", "add", file, "x", "--json");
    expect(add.exitCode).toBe(1);
  });
}

test("a state that can be written is well", () => {
  const writable = 'mount -t tmpfs none "$S"';
  expect(run(writable, "run", "status", file).exitCode).toBe(0);
  expect(JSON.parse(run(writable, "doctor", file, "--json").out).broken).toBe(0);
});
