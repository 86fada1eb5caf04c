/** Compiles the C sources of program/ and server/: programs without a libc, which the kernel starts by themselves. @module */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { newScratchDirectory, REPOSITORY_ROOT } from "../repository.ts";
import type { Processor } from "./runtime_patch.ts";

/** Debian's cross compilers have these names too; the first is the machine's own. */
const COMPILERS: Readonly<Record<Processor, readonly string[]>> = {
  x64: [...process.arch === "x64" ? ["cc"] : [], "x86_64-linux-gnu-gcc"],
  arm64: [...process.arch === "arm64" ? ["cc"] : [], "aarch64-linux-gnu-gcc"],
};

const DEBIAN_PACKAGES: Readonly<Record<Processor, string>> = {
  x64: process.arch === "x64" ? "gcc libc6-dev" : "gcc-x86-64-linux-gnu libc6-dev-amd64-cross",
  arm64: process.arch === "arm64" ? "gcc libc6-dev" : "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
};

const FLAGS = `
  -Os -std=gnu11 -Wall -Wextra -Werror -static -nostdlib -ffreestanding
  -fno-stack-protector -fno-asynchronous-unwind-tables -fno-pie -no-pie -s
  -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-z,norelro -Wl,-z,noexecstack
`.trim().split(/\s+/);

/** @param source from the repository's root @throws {Error} without a compiler for the processor */
export function compileNative(processor: Processor, source: string, flags: readonly string[] = []): Buffer {
  const compiler = COMPILERS[processor].find((name) => Bun.which(name));
  if (compiler === undefined) {
    const names = COMPILERS[processor].join(" or ");
    throw new Error(`Cannot build: there is no ${names} (Debian: ${DEBIAN_PACKAGES[processor]})`);
  }
  using scratch = newScratchDirectory(join(REPOSITORY_ROOT, "dist"));
  const output = join(scratch.path, "program");
  const command = [compiler, ...FLAGS, ...flags, "-o", output, join(REPOSITORY_ROOT, source)];
  const { success, stderr } = Bun.spawnSync(command, { stderr: "pipe" });
  if (!success) throw new Error(`Cannot compile "${source}" with ${compiler}:\n${stderr}`);
  return readFileSync(output);
}
