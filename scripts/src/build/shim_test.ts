import { expect, test } from "bun:test";
import { chmodSync, linkSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PROGRAM_MARK } from "../../../ffi/sys/program_mark.ts";
import { testWith } from "../../../testing/binary.ts";
import { until } from "../../../testing/netns.ts";
import { newServerSite } from "../../../testing/server_site.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import type { Processor } from "./runtime_patch.ts";
import { compileShim, SHIM_SOURCE } from "./shim.ts";

const MAX_LINES = 300;
const MAX_BYTES = 16 * 1024;

test("the shim's source stays short", () => {
  expect(readFileSync(SHIM_SOURCE, "utf8").split("\n").length - 1).toBeLessThanOrEqual(MAX_LINES);
});

/** A directory with a shim and, in the place of the full binary, a script that prints how it was called. */
function installShim(processor: Processor) {
  const directory = mkdtempSync(join(tmpdir(), "cni-shim-"));
  const shim = join(directory, "bridge");
  const bytes = compileShim(processor);
  expect(bytes.length).toBeLessThanOrEqual(MAX_BYTES);
  expect(bytes.subarray(-PROGRAM_MARK.length).toString()).toBe(PROGRAM_MARK);
  writeFileSync(shim, bytes);
  chmodSync(shim, 0o755);
  linkSync(shim, join(directory, "cni"));
  writeFileSync(join(directory, "cni-full"), '#!/bin/sh\necho "$CNI_COMMAND,$*,$(cat)"\n', { mode: 0o755 });
  return { directory, [Symbol.dispose]: () => rmSync(directory, { recursive: true }) };
}

const PROCESSORS = [
  { processor: "x64", programs: process.arch === "x64" ? ["cc"] : ["x86_64-linux-gnu-gcc", "qemu-x86_64"] },
  { processor: "arm64", programs: process.arch === "arm64" ? ["cc"] : ["aarch64-linux-gnu-gcc", "qemu-aarch64"] },
] as const;

for (const { processor, programs } of PROCESSORS) {
  const [, emulator] = programs as readonly string[];
  const wrapper = emulator === undefined ? [] : [emulator];

  testWith(programs, `the shim for ${processor} executes the full binary with all that it was given`, async () => {
    using installed = installShim(processor);
    const run = async (name: string, words: readonly string[], env: Record<string, string>) => {
      const child = Bun.spawn([...wrapper, join(installed.directory, name), ...words], {
        env: { PATH: process.env.PATH, ...env },
        stdin: Buffer.from("input"),
      });
      return [await child.stdout.text(), await child.exited];
    };
    const CNI_SOCKET = join(installed.directory, "absent");
    expect(await run("bridge", [], { CNI_COMMAND: "ADD", CNI_SOCKET })).toEqual(["ADD,,input\n", 0]);
    expect(await run("cni", ["version", "--json"], { CNI_SOCKET })).toEqual([",version --json,input\n", 0]);
    const tooLong = "/".padEnd(200, "a");
    expect(await run("cni", ["run", "add", "a", "b"], { CNI_SOCKET: tooLong })).toEqual([",run add a b,input\n", 0]);
    rmSync(join(installed.directory, "cni-full"));
    const [stdout, status] = await run("bridge", [], { CNI_COMMAND: "ADD", CNI_SOCKET });
    expect([JSON.parse(`${stdout}`).code, status]).toEqual([5, 1]);
  });

  testWith(programs, `the shim for ${processor} hands its call to a server`, async () => {
    using installed = installShim(processor);
    await using site = newServerSite();
    const server = site.start();
    await server.untilReady();
    const child = Bun.spawn([...wrapper, join(installed.directory, "bridge")], {
      env: { CNI_COMMAND: "VERSION", CNI_SOCKET: site.socket },
      stdin: Buffer.from('{"cniVersion":"1.0.0"}'),
    });
    expect(JSON.parse(await child.stdout.text())).toHaveProperty("supportedVersions");
    expect(await child.exited).toBe(0);
    await until(() => site.status().served === 1);
  });
}

test("a build without a C compiler says what to install, and leaves nothing", () => {
  const directory = mkdtempSync(join(tmpdir(), "cni-no-compiler-"));
  const main = join(REPOSITORY_ROOT, "scripts/src/build/main.ts");
  const argv = [process.execPath, main, `--outfile=${join(directory, "cni")}`];
  const built = Bun.spawnSync(argv, { env: { PATH: "/nonexistent" }, stderr: "pipe" });
  expect([built.exitCode, built.stderr.toString()]).toEqual([
    1,
    expect.stringMatching(/^Cannot build: there is no cc or \S+-gcc \(Debian: gcc libc6-dev\)\n$/),
  ]);
  expect(readdirSync(directory)).toEqual([]);
  rmSync(directory, { recursive: true });
});
