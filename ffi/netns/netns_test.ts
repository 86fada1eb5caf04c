import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createNetns, currentNetns, openNetns } from "./netns.ts";

const directory = mkdtempSync(join(tmpdir(), "cni-netns-"));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

/** A process that creates a namespace, enters it, and tells whether it is where it was before. */
const SCRIPT = `
import { createNetns, currentNetns } from ${JSON.stringify(join(import.meta.dir, "netns.ts"))};
using host = currentNetns();
using netns = createNetns();
const inside = netns.run(() => currentNetns().identity);
console.log(inside === netns.identity, currentNetns().identity === host.identity);
`;

// The first is the return from the namespace just created, the second leads into it, the third back.
test.each([1, 3])(
  "the thread goes back into its namespace although the kernel refuses it at first, at call %d",
  (when) => {
    const script = join(directory, "enter.ts");
    writeFileSync(script, SCRIPT);
    for (const error of ["ENOMEM", "EPERM"]) {
      const log = join(directory, "log");
      const strace = ["strace", "-f", "-o", log, "-e", "trace=setns", "-e", `inject=setns:error=${error}:when=${when}`];
      const { stdout, stderr } = Bun.spawnSync([...strace, process.execPath, script]);
      expect(stdout.toString() + stderr.toString()).toBe("true true\n");
      expect(Bun.spawnSync(["grep", "-c", "INJECTED", log]).stdout.toString()).toBe("1\n");
    }
  },
);

const identityHere = (): string => {
  using here = currentNetns();
  return here.identity;
};

test("run() inside run() returns to where it was called, and goes home from the outer one", () => {
  using home = currentNetns();
  using first = createNetns();
  using second = createNetns();
  using outer = openNetns(first.path, home);
  using inner = openNetns(second.path, home);
  const seen = outer.run(() => [
    outer.run(identityHere),
    inner.run(() => [identityHere(), outer.run(identityHere), identityHere()]),
    // Opening a socket enters the namespace too.
    outer.route && identityHere(),
    inner.route && identityHere(),
  ]);
  expect([seen, identityHere()].flat(2)).toEqual([
    ...[outer, inner, outer, inner, outer, outer].map(({ identity }) => identity),
    home.identity,
  ]);
});

test("cookie is of the namespace, whoever holds it open, and is given to no other after it is gone", () => {
  const seen = new Set<string | undefined>();
  for (let attempt = 0; attempt < 20; attempt++) {
    using netns = createNetns();
    using again = openNetns(netns.path);
    expect([again.cookie, again.identity]).toEqual([netns.cookie, netns.identity]);
    expect(netns.cookie).toMatch(/^[1-9]\d*$/);
    seen.add(netns.cookie);
  }
  expect(seen.size).toBe(20);
});

test("cookie is undefined where the kernel has none", () => {
  const code = `
    import { currentNetns } from ${JSON.stringify(join(import.meta.dir, "netns.ts"))};
    using host = currentNetns();
    console.log(host.cookie);`;
  const inject = ["-e", "trace=getsockopt", "-e", "inject=getsockopt:error=ENOPROTOOPT"];
  const { stdout } = Bun.spawnSync(["strace", "-f", "-o", "/dev/null", ...inject, process.execPath, "-e", code]);
  expect(stdout.toString()).toBe("undefined\n");
});
