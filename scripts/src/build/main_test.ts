import { afterAll, beforeAll, expect, test } from "bun:test";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PROGRAM_MARK } from "../../../ffi/sys/program_mark.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

let scratch = "";
beforeAll(() => {
  scratch = mkdtempSync(join(tmpdir(), "cni-build-"));
});
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

function build(root: string, cwd: string, ...flags: string[]): string {
  const child = Bun.spawnSync([process.execPath, join(root, "scripts/src/build/main.ts"), ...flags], { cwd });
  return child.success ? "" : child.stderr.toString();
}

function digest(path: string): string {
  return new Bun.CryptoHasher("sha256").update(readFileSync(path)).digest("hex");
}

test("build gives the same bytes from another directory and another checkout", () => {
  const checkout = join(scratch, "another checkout");
  const { packages: locked } = JSON.parse(readFileSync(join(REPOSITORY_ROOT, "package-lock.json"), "utf8"));
  const packages = Object.keys(locked).filter((path) => path !== "" && !locked[path].dev);
  for (
    const name of [
      "cmd",
      "server",
      "heal",
      "inspect",
      "networks",
      "containers",
      "program",
      "cluster",
      "policy",
      "runtime",
      "plugins",
      "spec",
      "ffi",
      "scripts",
      "package.json",
      "deno.json",
      ...packages,
    ]
  ) {
    cpSync(join(REPOSITORY_ROOT, name), join(checkout, name), { recursive: true });
  }
  const here = join(scratch, "here");
  expect(build(REPOSITORY_ROOT, REPOSITORY_ROOT, `--outfile=${here}`)).toBe("");
  expect(build(checkout, scratch)).toBe("");
  expect(digest(join(checkout, "dist/cni"))).toBe(digest(here));
  expect(readdirSync(join(checkout, "dist"))).toEqual(["cni"]);
  // By this "cni install" knows copies of any version.
  expect(readFileSync(here).subarray(-PROGRAM_MARK.length).toString()).toBe(PROGRAM_MARK);
});

test("build names the file that does not compile, and leaves nothing", () => {
  expect(build(REPOSITORY_ROOT, scratch, "--entry=absent.ts", "--outfile=out/cni")).toContain(
    `Cannot compile "${scratch}/absent.ts"`,
  );
  expect(readdirSync(join(scratch, "out"))).toEqual([]);
});

test("build refuses a target it cannot close", () => {
  expect(build(REPOSITORY_ROOT, scratch, "--target=bun-darwin-arm64")).toContain(
    'Cannot build for target "bun-darwin-arm64"',
  );
});
