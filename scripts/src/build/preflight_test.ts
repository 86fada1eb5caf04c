import { expect, test } from "bun:test";
import { chmodSync, cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { testWith } from "../../../testing/binary.ts";
import { addPreflight, PREFLIGHTS } from "./preflight.ts";

const TOOLS = {
  x64: process.arch === "x64" ? "" : "x86_64-linux-gnu-",
  arm64: process.arch === "arm64" ? "" : "aarch64-linux-gnu-",
} as const;
const PROCESSORS = ["x64", "arm64"] as const;

for (const processor of PROCESSORS) {
  const [as, objcopy] = [`${TOOLS[processor]}as`, `${TOOLS[processor]}objcopy`];
  testWith([as, objcopy], `the bytes for ${processor} are what the assembler makes of the source`, () => {
    const scratch = mkdtempSync(join(tmpdir(), "cni-preflight-"));
    try {
      const [object, binary] = [join(scratch, "preflight.o"), join(scratch, "preflight.bin")];
      const source = join(import.meta.dir, `preflight_${processor}.S`);
      for (const command of [[as, "-o", object, source], [objcopy, "-O", "binary", "-j", ".text", object, binary]]) {
        expect(Bun.spawnSync(command).stderr.toString()).toBe("");
      }
      expect(readFileSync(binary).toString("hex")).toBe(PREFLIGHTS[processor].code.toString("hex"));
    } finally {
      rmSync(scratch, { recursive: true });
    }
  });
}

/** An ELF file with a segment of code that ends the process with status 7, and padding before it. */
function executable(processor: keyof typeof PREFLIGHTS, padding: number): Buffer {
  const code = {
    //                mov edi, 7              mov eax, 231 (exit_group)     syscall
    x64: Buffer.from([0xbf, 7, 0, 0, 0, 0xb8, 0xe7, 0, 0, 0, 0x0f, 0x05]),
    //                  mov x0, 7               mov x8, 94 (exit_group) svc 0
    arm64: Buffer.from([0xe0, 0, 0x80, 0xd2, 0xc8, 0x0b, 0x80, 0xd2, 1, 0, 0, 0xd4]),
  }[processor];
  const header = Buffer.alloc(64);
  header.set([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1]);
  header.writeUInt16LE(2, 0x10);
  header.writeUInt16LE({ x64: 62, arm64: 183 }[processor], 0x12);
  header.writeUInt32LE(1, 0x14);
  const offset = 120 + padding;
  header.writeBigUInt64LE(0x400000n + BigInt(offset), 0x18);
  header.writeBigUInt64LE(64n, 0x20);
  header.writeUInt16LE(64, 0x34);
  header.writeUInt16LE(56, 0x36);
  header.writeUInt16LE(1, 0x38);
  const segment = Buffer.alloc(56);
  segment.writeUInt32LE(1, 0);
  segment.writeUInt32LE(5, 4);
  const address = 0x400000 + offset;
  [offset, address, address, code.length, code.length, 0x1000].forEach((value, i) =>
    segment.writeBigUInt64LE(BigInt(value), 8 + 8 * i)
  );
  return Buffer.concat([header, segment, Buffer.alloc(padding), code]);
}

/** The little program, and a directory without /proc for it, in which the emulator is as well. */
function newProgram(processor: keyof typeof PREFLIGHTS, emulator: string | undefined) {
  const directory = mkdtempSync(join(tmpdir(), "cni-preflight-"));
  const file = executable(processor, 8 + 1024);
  addPreflight(file, processor);
  writeFileSync(join(directory, "program"), file);
  chmodSync(join(directory, "program"), 0o755);
  if (emulator) cpSync(Bun.which(emulator)!, join(directory, "emulator"));
  const run = (wrapper: readonly string[], command: readonly string[], env: Record<string, string> = {}) => {
    const child = Bun.spawnSync([...wrapper, ...command], { env: { PATH: process.env["PATH"]!, ...env } });
    return [child.exitCode, child.stdout.toString(), child.stderr.toString()];
  };
  return {
    run: (...wrapper: string[]) => run(wrapper, [...emulator ? [emulator] : [], join(directory, "program")]),
    runInRoot: (env?: Record<string, string>) =>
      run(["chroot", directory], [...emulator ? ["/emulator"] : [], "/program"], env),
    [Symbol.dispose]: () => rmSync(directory, { recursive: true }),
  };
}

const EMULATORS = {
  x64: process.arch === "x64" ? undefined : "qemu-x86_64-static",
  arm64: process.arch === "arm64" ? undefined : "qemu-aarch64-static",
} as const;

for (const processor of PROCESSORS) {
  const emulator = EMULATORS[processor];
  testWith(emulator ? [emulator] : [], `the code for ${processor} goes on to the program, or says why not`, () => {
    using program = newProgram(processor, emulator);
    expect(program.run()).toEqual([7, "", ""]);
    const noProc = "Cannot start: /proc is not mounted";
    expect(program.runInRoot()).toEqual([1, "", `cni: ${noProc}\n`]);
    const [status, stdout, stderr] = program.runInRoot({ A: "b", CNI_COMMAND: "ADD" });
    expect([status, JSON.parse(`${stdout}`), stderr]).toEqual([1, { cniVersion: "1.1.0", code: 999, msg: noProc }, ""]);
    expect(program.runInRoot({ CNI_COMMAND: "" })).toEqual([1, "", `cni: ${noProc}\n`]);
    const littleStack = program.run("sh", "-c", 'ulimit -s 160; exec "$@"', "sh");
    expect(littleStack).toEqual([1, "", expect.stringContaining("the stack is limited too much")]);
    const littleSpace = program.run("sh", "-c", 'ulimit -v 2600000; exec "$@"', "sh");
    expect(littleSpace).toEqual([1, "", expect.stringContaining("the address space is limited too much")]);
    expect(program.run("sh", "-c", 'ulimit -v 2700000; exec "$@"', "sh")).toEqual([7, "", ""]);
  });

  test(`addPreflight() refuses a runtime for ${processor} with too little padding before its code`, () => {
    const { length } = PREFLIGHTS[processor].code;
    for (const padding of [0, length, Math.ceil(length / 16) * 16]) {
      expect(() => addPreflight(executable(processor, padding), processor)).toThrow(
        "too little padding before its code",
      );
    }
    const code = executable(processor, 1032);
    code[1100] = 1;
    expect(() => addPreflight(code, processor)).toThrow("too little padding before its code");
  });
}
