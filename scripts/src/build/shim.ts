import { join } from "node:path";
import { readFileSync } from "node:fs";
import { PROGRAM_MARK } from "../../../ffi/sys/program_mark.ts";
import { newScratchDirectory, REPOSITORY_ROOT } from "../repository.ts";
import type { Processor } from "./runtime_patch.ts";

export const SHIM_SOURCE = join(REPOSITORY_ROOT, "server/shim/shim.c");

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

/** The shim for a processor, with the mark of the program; `undefined` without a compiler for it. */
export function compileShim(processor: Processor): Buffer | undefined {
  const compiler = COMPILERS[processor].find((name) => Bun.which(name));
  if (compiler === undefined) {
    const names = COMPILERS[processor].join(" or ");
    console.log(`Building without the shim: there is no ${names} (Debian: ${DEBIAN_PACKAGES[processor]})`);
    return undefined;
  }
  using scratch = newScratchDirectory(join(REPOSITORY_ROOT, "dist"));
  const output = join(scratch.path, "shim");
  const { success, stderr } = Bun.spawnSync([compiler, ...FLAGS, "-o", output, SHIM_SOURCE], { stderr: "pipe" });
  if (!success) throw new Error(`Cannot compile "${SHIM_SOURCE}" with ${compiler}:\n${stderr}`);
  return Buffer.concat([readFileSync(output), Buffer.from(PROGRAM_MARK)]);
}
