/** The machines that are emulated: processor, board and kernel of each. @module */
import type { Processor } from "../build/runtime_patch.ts";

/** The oldest kernel that is promised to work, and the release of Debian that has it. */
export const OLDEST = { version: "5.10", release: "bullseye" } as const;

/** Two have this machine's processor; one has Debian's kernel as most machines have it, the other the oldest kernel. */
export type MachineName = "current" | "oldest" | "arm64";

export interface Machine {
  readonly processor: Processor;
  /** Debian's name of the processor. */
  readonly architecture: string;
  /** Of Debian; this machine's unless told. */
  readonly release?: string;
  readonly emulator: string;
  /** The board, the processor, and two serial lines: the job's terminal, `ttyS0`, and one that writes to `log`. */
  readonly board: (log: string) => readonly string[];
  /** The serial line that takes messages of the kernel, and the exit status. */
  readonly console: string;
  readonly kernelParameters: string;
  /** The longest that a command may take. */
  readonly timeoutS: number;
}

const X64: Machine = {
  processor: "x64",
  architecture: "amd64",
  emulator: "qemu-system-x86_64",
  board: (log) => ["-M", "pc", "-cpu", "max", "-serial", "chardev:job", "-serial", `file:${log}`],
  console: "ttyS1",
  // The clock is the emulator's: there is nothing to calibrate.
  kernelParameters: "tsc=reliable no_timer_check",
  timeoutS: 1800,
};

export const MACHINES: Readonly<Record<MachineName, Machine>> = {
  current: X64,
  oldest: { ...X64, release: OLDEST.release },
  arm64: {
    processor: "arm64",
    architecture: "arm64",
    emulator: "qemu-system-aarch64",
    board: (log) => [
      // An old processor: without the atomic instructions and the access flags by hardware that newer ones have.
      "-M",
      "virt",
      "-cpu",
      "cortex-a72",
      "-serial",
      `file:${log}`,
      "-device",
      "pci-serial,chardev=job",
    ],
    console: "ttyAMA0",
    kernelParameters: "",
    timeoutS: 7200,
  },
};
