/** Links in a configuration directory to what is no ordinary file: nobody waits for them, and each is named. */
import { afterAll, expect, test } from "bun:test";
import { mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { newCliSandboxes } from "../testing/cli.ts";
import { newNetns } from "../testing/netns.ts";

const sandboxes = newCliSandboxes();
afterAll(() => rmSync(sandboxes.root, { recursive: true }));

const fifo = join(sandboxes.root, "fifo");
Bun.spawnSync(["mkfifo", fifo]);

/** /proc/kmsg is called an ordinary file, and waits for messages of the kernel. */
const TARGETS = [fifo, "/proc/kmsg", "/dev/zero"];
/** Each with the exit status that it has beside a broken file. */
const COMMANDS: readonly [words: string, exitCode: number][] = [
  ["network ls", 1],
  ["network inspect good", 0],
  ["network create other", 0],
  ["network prune --dry-run", 0],
  ["run status good", 0],
  ["run list", 0],
  ["lint", 1],
  ["doctor", 1],
];

test.each(TARGETS)("a link to %s", (target) => {
  using host = newNetns();
  const directory = join(sandboxes.root, `conf${readdirSync(sandboxes.root).length}`);
  const plugins = [{ type: "loopback" }];
  for (const name of ["", "good"]) mkdirSync(join(directory, name), { recursive: true });
  // Behind the good one, and so beside its own plugins.
  const links = [join(directory, "20-bad.conflist"), join(directory, "good/bad.conf")];
  for (const [i, link] of links.entries()) {
    rmSync(links[1 - i]!, { force: true });
    symlinkSync(target, link);
    const document = { cniVersion: "1.0.0", name: "good", loadOnlyInlinedPlugins: i === 0, plugins };
    writeFileSync(join(directory, "10-good.conflist"), JSON.stringify(document));
    for (const [words, exitCode] of i === 0 ? COMMANDS : [["network ls", 1], ["run status good", 1]] as const) {
      const paths = words === "lint"
        ? [directory]
        : ["--conf-dir", directory, "--cache-dir", join(sandboxes.root, "cache")];
      const started = performance.now();
      const result = host.run(() => sandboxes.cni([...words.split(" "), ...paths]));
      expect([words, result.exitCode, result.stderr]).toEqual([words, exitCode, result.stderr]);
      expect(performance.now() - started).toBeLessThan(40_000);
      rmSync(join(directory, "10-other.conflist"), { force: true });
      if (words === "network ls" || words === "lint") expect(result.stdout + result.stderr).toContain(link);
    }
  }
}, 60_000);
