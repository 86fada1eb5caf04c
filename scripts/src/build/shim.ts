import { join } from "node:path";
import { readFileSync } from "node:fs";
import { PROGRAM_MARK } from "../../../ffi/sys/program_mark.ts";
import { newScratchDirectory, REPOSITORY_ROOT } from "../repository.ts";
import type { Processor } from "./runtime_patch.ts";

const SOURCE = join(REPOSITORY_ROOT, "cmd/shim/shim.c");

/** Debian's cross compilers have these names too; the first is the machine's own. */
const COMPILERS: Readonly<Record<Processor, readonly string[]>> = {
  x64: [...process.arch === "x64" ? ["cc"] : [], "x86_64-linux-gnu-gcc"],
  arm64: [...process.arch === "arm64" ? ["cc"] : [], "aarch64-linux-gnu-gcc"],
};

const FLAGS = [
  ...["-Os", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-static", "-nostdlib", "-ffreestanding"],
  ...["-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-fno-pie", "-no-pie", "-s"],
  ...["-Wl,--build-id=none", "-Wl,-z,noseparate-code", "-Wl,-z,norelro", "-Wl,-z,noexecstack"],
];

/** The shim for a processor, with the mark of the program; `undefined` without a compiler for it. */
export function compileShim(processor: Processor): Buffer | undefined {
  const compiler = COMPILERS[processor].find((name) => Bun.which(name));
  if (compiler === undefined) {
    console.log(
      `Building without the shim: install ${
        COMPILERS[processor].at(-1)
      } and its libc's headers (Debian: gcc libc6-dev)`,
    );
    return undefined;
  }
  using scratch = newScratchDirectory(join(REPOSITORY_ROOT, "dist"));
  const output = join(scratch.path, "shim");
  const { success, stderr } = Bun.spawnSync([compiler, ...FLAGS, "-o", output, SOURCE], { stderr: "pipe" });
  if (!success) throw new Error(`Cannot compile "${SOURCE}" with ${compiler}:\n${stderr}`);
  return Buffer.concat([readFileSync(output), Buffer.from(PROGRAM_MARK)]);
}
