import { expect, test } from "bun:test";
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { testWith } from "../../../testing/binary.ts";
import { CNI_PROGRAM, newScratchDirectory } from "../repository.ts";
import { alignCode, LARGE_PAGE_BYTES } from "./code_alignment.ts";
import { PF_X, PT_LOAD, readSegments } from "./elf_segments.ts";

const codeOf = (file: Buffer) => readSegments(file).find(({ type, flags }) => type === PT_LOAD && flags & PF_X)!;
const misalignment = ({ address, offset }: ReturnType<typeof codeOf>) => (address - offset) % LARGE_PAGE_BYTES;

test("large pages of the file can be mapped as the program's code", () => {
  expect(misalignment(codeOf(readFileSync(CNI_PROGRAM)))).toBe(0);
});

testWith(["cc"], "a program whose code was aligned does what it did", () => {
  using scratch = newScratchDirectory();
  const [source, program] = [join(scratch.path, "program.c"), join(scratch.path, "program")];
  writeFileSync(
    source,
    'static char text[] = "aligned";\nint puts(const char *);\nint main() { return puts(text) < 0; }',
  );
  const flags = ["-no-pie", "-Wl,-z,separate-code", "-Wl,-Ttext-segment=0x430000"];
  const { stderr } = Bun.spawnSync(["cc", ...flags, "-o", program, source], { stderr: "pipe" });
  expect(`${stderr}`).toBe("");
  const file = readFileSync(program);
  expect(misalignment(codeOf(file))).not.toBe(0);
  const aligned = alignCode(file);
  expect(misalignment(codeOf(aligned))).toBe(0);
  writeFileSync(program, aligned);
  chmodSync(program, 0o755);
  expect(`${Bun.spawnSync([program]).stdout}`).toBe("aligned\n");
});
