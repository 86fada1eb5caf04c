import { afterAll, beforeAll, expect, test } from "bun:test";
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pluginNames } from "../../../plugins/registry.ts";
import { CNI_PROGRAM, ENGINE_ENV, testWith } from "../../../testing/binary.ts";
import { compileShim } from "../build/shim.ts";
import { hostLibraries } from "../image/main.ts";
import { licenceTexts } from "./licences.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import { requireReplaceable, sha256Sums } from "./main.ts";
import { gzip, pluginArchive } from "./plugin_archive.ts";

let scratch = "";
beforeAll(() => {
  scratch = mkdtempSync(join(tmpdir(), "cni-release-"));
  chmodSync(scratch, 0o755);
});
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

testWith(
  ["cc", "ldd"],
  "the archive, unpacked, is a directory of plugins for engines, with one copy of the program",
  () => {
    const binaries = { program: readFileSync(CNI_PROGRAM), shim: compileShim(process.arch as "x64") };
    const libraries = hostLibraries(CNI_PROGRAM);
    const archive = join(scratch, "cni-plugins.tgz");
    writeFileSync(archive, gzip(pluginArchive({ ...binaries, libraries }, licenceTexts(), 1e9), 1));
    const bin = join(scratch, "opt/cni/bin");
    const unpack = 'mkdir -p "$1"; tar -C "$1" -xzf "$2"';
    expect(Bun.spawnSync(["sh", "-ec", unpack, "sh", bin, archive]).stderr.toString()).toBe("");
    const names = ["cni", ...pluginNames()];
    expect(readdirSync(bin).sort()).toEqual(["LICENSE", "LICENSE.third-party", "cni-full", "cni-lib", ...names].sort());
    const inodes = (paths: readonly string[]) => [...new Set(paths.map((name) => statSync(join(bin, name)).ino))];
    expect(inodes(names)).toHaveLength(1);
    const env = { ...ENGINE_ENV, CNI_SOCKET: join(scratch, "no-server") };
    for (const program of ["bridge", "host-local"]) {
      const child = Bun.spawnSync([join(bin, program)], { env, stdin: Buffer.from('{"cniVersion":"1.0.0"}') });
      expect(JSON.parse(child.stdout.toString()).supportedVersions).toContain("1.1.0");
    }
    // It knows its own files: nothing is in the way of an installation over them.
    const installed = Bun.spawnSync([join(bin, "cni"), "install", bin], { stderr: "pipe" });
    expect([installed.exitCode, installed.stderr.toString()]).toEqual([0, ""]);
  },
  60_000,
);

/** Prints the digests of archives that a process makes with these first words, as another user elsewhere would. */
function digestsOfArchives(...wrapper: readonly string[]): string {
  const script = `
    const { pluginArchive, gzip } = await import(${JSON.stringify(join(import.meta.dir, "plugin_archive.ts"))});
    const { debianPackage } = await import(${JSON.stringify(join(import.meta.dir, "debian.ts"))});
    const binaries = { program: Buffer.alloc(1e6, "program"), shim: Buffer.from("shim"), libraries: [] };
    const release = { version: "0.1.0", architecture: "arm64", maintainer: "A B <a@example.org>", time: 1e9 };
    const archives = [
      gzip(pluginArchive(binaries, { LICENSE: "text" }, 1e9)),
      debianPackage(release, binaries, { "LICENSE.third-party": "text" }, { "man/man8/cni.8": ".TH CNI 8\\n" }),
    ];
    for (const archive of archives) console.log(new Bun.CryptoHasher("sha256").update(archive).digest("hex"));`;
  const child = Bun.spawnSync([...wrapper, process.execPath, "-e", script], { cwd: scratch, stderr: "pipe" });
  expect(child.stderr.toString()).toBe("");
  return child.stdout.toString();
}

testWith(["faketime", "dpkg-deb"], "a process elsewhere on another day makes the same bytes", () => {
  const here = digestsOfArchives();
  expect(here).toMatch(/^([\da-f]{64}\n){2}$/);
  const elsewhere = [
    "sh",
    "-c",
    'umask 077; export TZ=Asia/Kathmandu LANG=C; exec "$@"',
    "sh",
    "faketime",
    "-f",
    "+400d",
  ];
  expect(digestsOfArchives(...elsewhere)).toBe(here);
});

test("the licences of all packages in the program are there, and of the parts of the runtime", () => {
  const { LICENSE, "LICENSE.third-party": others } = licenceTexts();
  expect(LICENSE).toContain("Apache License");
  for (const title of [/^Bun \d/m, /^jsonc-parser \d/m, /^prom-client \d/m, /JavaScriptCore/, /`mimalloc`/]) {
    expect(others).toMatch(title);
  }
  expect(others).not.toMatch(/^fast-check/m);
});

test("a release replaces no directory but that of another release", () => {
  const directory = mkdtempSync(join(scratch, "out-"));
  requireReplaceable(join(directory, "absent"));
  requireReplaceable(directory);
  writeFileSync(join(directory, "thesis"), "text");
  expect(() => requireReplaceable(directory)).toThrow('"thesis" is no part of one');
  writeFileSync(join(directory, "SHA256SUMS"), sha256Sums(directory));
  requireReplaceable(directory);
  writeFileSync(join(directory, "photo"), "image");
  expect(() => requireReplaceable(directory)).toThrow('"photo" is no part of one');
});

test("a release that a place would throw away is refused before anything is done", () => {
  const command = [process.execPath, join(REPOSITORY_ROOT, "scripts/src/release/main.ts"), "--out=/dev/shm/a/release"];
  const env = { ...process.env, CNI_PLACE: "bare" };
  const { exitCode, stdout, stderr } = Bun.spawnSync(command, { env, stderr: "pipe", timeout: 10_000 });
  const sentence = 'Cannot write "/dev/shm/a/release": a place keeps nothing but what is in the checkout; ';
  expect([exitCode, stdout.toString(), stderr.toString()]).toEqual([1, "", expect.stringContaining(sentence)]);
});

test("sha256sum(1) checks the sums", () => {
  const directory = mkdtempSync(join(scratch, "sums-"));
  for (const name of ["b", "a"]) writeFileSync(join(directory, name), name);
  const sums = sha256Sums(directory);
  expect(sums).toMatch(/^\w{64} {2}a\n\w{64} {2}b\n$/);
  const check = Bun.spawnSync(["sha256sum", "--check", "--strict"], { cwd: directory, stdin: Buffer.from(sums) });
  expect(check.exitCode).toBe(0);
});
