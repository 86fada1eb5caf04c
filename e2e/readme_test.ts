/** The commands of README.md "The first five minutes" work when they are pasted. */
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { REPOSITORY_ROOT } from "../scripts/src/repository.ts";
import { CNI_PROGRAM } from "../testing/binary.ts";

const BUILD = "npm ci && npm run build";
/** What the commands write below. */
const DIRECTORIES = ["/opt", "/var/lib", "/run"];

/** The lines of the section's code blocks. */
function readCommands(): string[] {
  const readme = readFileSync(join(REPOSITORY_ROOT, "README.md"), "utf8");
  const section = readme.split("\n## The first five minutes\n")[1]?.split("\n## ")[0] ?? "";
  return [...section.matchAll(/^ {4}(.+)$/gm)].map(([, line = ""]) => line);
}

test("the first five minutes of the README work when pasted", () => {
  const [build, ...commands] = readCommands();
  // The tests run after a build; what it made is put in its place.
  expect(build).toBe(BUILD);
  const script = [
    ...DIRECTORIES.map((directory) => `mount -t tmpfs tmpfs ${directory}`),
    `cd ${dirname(dirname(CNI_PROGRAM))}`,
    ...commands,
    "echo at the end: && cni run list && cni netns list",
  ].join("\n");
  const { exitCode, stdout, stderr } = Bun.spawnSync(
    ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-ec", script],
    { env: { PATH: process.env.PATH }, stdin: "ignore" },
  );
  const said = `${stdout}${stderr}`;
  expect([exitCode, said]).toEqual([0, said]);
  const [during, after] = stdout.toString().split("at the end:\n");
  expect(during).toMatch(/^default .* eth0 +attached .* \/run\/netns\/web/m);
  // The head of the table of attachments, no attachment and no namespace.
  expect(after!.trim().split("\n")).toHaveLength(1);
});
