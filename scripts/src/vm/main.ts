/** The body of `scripts/vm`: runs a command as root in an emulated machine, which needs no rights and keeps nothing. @module */
import { closeSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { newScratchDirectory } from "../repository.ts";
import { ensureKernel } from "./kernel.ts";
import { JOB_NAME, jobScript, openImage } from "./image.ts";
import { type Machine, type MachineName, MACHINES } from "./machine.ts";

/** Booting takes about 2 seconds on an idle machine. */
const BOOT_TIMEOUT_S = 180;
/** Exit status when the machine failed, not the command. */
const MACHINE_FAILED = 125;

interface VmRun {
  readonly job: string;
  readonly log: string;
}

const KERNEL_PARAMETERS = [
  "quiet nokaslr mitigations=off cryptomgr.notests random.trust_cpu=on panic=-1",
  // Namespaces end without waiting for a grace period.
  "rcupdate.rcu_expedited=1",
  // SELinux without a policy: it refuses nothing, and knows a few contexts by name.
  "lsm=landlock,selinux selinux=1",
];

/** Two network cards on one wire. Without their driver, which a test loads, the machine has no interface but the loopback. */
const CARDS = ["04", "05"].flatMap((slot) => [
  "-netdev",
  `hubport,id=wire${slot},hubid=0`,
  "-device",
  `virtio-net-pci,netdev=wire${slot},addr=${slot},mac=52:54:00:00:00:${slot},romfile=`,
]);

/** Half of the memory is for files: tests install the program, of 119 MB, in several roots at once. */
const EMULATOR_OPTIONS = `
  -accel tcg,thread=multi -smp 2 -m 3072
  -nodefaults -no-user-config -display none -no-reboot
  -chardev stdio,id=job,signal=off
`.trim().split(/\s+/);

function emulatorCommand(machine: Machine, kernel: string, image: string, { job, log }: VmRun): string[] {
  const parameters = [`console=${machine.console}`, ...KERNEL_PARAMETERS, machine.kernelParameters].join(" ");
  return [
    machine.emulator,
    ...EMULATOR_OPTIONS,
    ...machine.board(log),
    ...CARDS,
    "-kernel",
    kernel,
    "-initrd",
    image,
    "-append",
    parameters,
    "-fw_cfg",
    `name=${JOB_NAME},file=${job}`,
  ];
}

export function missingRequirement(name: MachineName): string {
  const missing = [MACHINES[name].emulator, "busybox", "ip"].filter((program) => !Bun.which(program));
  if (missing.length > 0) return `${missing.join(" and ")} ${missing.length > 1 ? "are" : "is"} missing`;
  try {
    ensureKernel(name);
  } catch (error) {
    return (error as Error).message;
  }
  return "";
}

async function boot(name: MachineName, command: readonly string[], run: VmRun) {
  const machine = MACHINES[name];
  const kernel = ensureKernel(name);
  const isShell = command.length === 0;
  writeFileSync(run.job, jobScript(command));
  const image = openImage(machine, kernel.modules);
  const child = Bun.spawn(emulatorCommand(machine, kernel.image, "/proc/self/fd/3", run), {
    stdio: [isShell ? "inherit" : "ignore", "inherit", "inherit", image],
  });
  closeSync(image);
  let trouble = "";
  const stop = (reason: string) => {
    trouble = reason;
    child.kill("SIGKILL");
  };
  const output = () => existsSync(run.log) ? readFileSync(run.log, "latin1") : "";
  const timers = [
    setTimeout(() => output().includes("vm: up") || stop(`did not boot in ${BOOT_TIMEOUT_S} s`), BOOT_TIMEOUT_S * 1000),
    setTimeout(() => isShell || stop(`was still busy after ${machine.timeoutS} s`), machine.timeoutS * 1000),
  ];
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => stop(`was stopped by ${signal}`));
  await child.exited;
  timers.forEach(clearTimeout);
  const status = /^vm: status (\d+)/m.exec(output())?.[1];
  if (status === undefined) trouble ||= `ended early: ${machine.emulator} gave ${child.exitCode}`;
  return { status: trouble ? MACHINE_FAILED : Number(status), trouble, log: output() };
}

async function main(argv: readonly string[]): Promise<number> {
  const flagged = (["oldest", "arm64"] as const).find((name) => argv[0] === `--${name}`);
  const name = flagged ?? "current";
  const reason = missingRequirement(name);
  if (reason) {
    console.error(`vm: ${reason}`);
    return MACHINE_FAILED;
  }
  using scratch = newScratchDirectory();
  const run = { job: join(scratch.path, "job"), log: join(scratch.path, "log") };
  const { status, trouble, log } = await boot(name, flagged ? argv.slice(1) : argv, run);
  const lastLines = log.trim().split("\n").slice(-60).join("\n");
  if (trouble) console.error(`vm: The virtual machine ${trouble}. The log of its kernel:\n${lastLines || "nothing"}`);
  return status;
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2));
