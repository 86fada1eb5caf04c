import { expect, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CNI_PROGRAM } from "../../testing/binary.ts";
import { useDirectory } from "../../testing/directory.ts";
import { STAGE_NAME } from "./staged_files.ts";

const root = useDirectory("cni-directory-lock-");

test.each<[string, readonly string[]]>([
  ["install", []],
  ["uninstall", ["--cache-dir", root, "--conf-dir", root]],
])(
  "cni %s waits until another process has installed what it has staged",
  async (verb, options) => {
    const directory = join(root, verb);
    const stage = join(directory, STAGE_NAME);
    mkdirSync(stage, { recursive: true });
    writeFileSync(join(stage, "cni-full"), "");
    const script = 'echo locked; sleep 0.5; ls "$0"';
    const other = Bun.spawn(["flock", directory, "sh", "-ec", script, stage], { stdout: "pipe" });
    const output = other.stdout.getReader();
    const next = async () => new TextDecoder().decode((await output.read()).value);
    expect(await next()).toBe("locked\n");
    const { exitCode, stderr } = Bun.spawnSync(["unshare", "--net", CNI_PROGRAM, verb, ...options, directory]);
    expect([exitCode, stderr.toString()]).toEqual([0, ""]);
    expect([await next(), await other.exited]).toEqual(["cni-full\n", 0]);
    expect(existsSync(stage)).toBe(false);
  },
);

test("installs at once all succeed", async () => {
  const directory = join(root, "together");
  const children = Array.from(
    { length: 4 },
    () => Bun.spawn([CNI_PROGRAM, "install", "--copy", directory], { stdout: "ignore", stderr: "pipe" }),
  );
  const ended = await Promise.all(children.map(async ({ exited, stderr }) => [await exited, await stderr.text()]));
  expect(ended).toEqual(Array(4).fill([0, ""]));
  expect(readdirSync(directory)).not.toContain(STAGE_NAME);
  expect(readdirSync(directory)).toContain("cni-full");
}, 60_000);
