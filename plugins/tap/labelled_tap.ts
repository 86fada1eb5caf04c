/**
 * Makes a tap in an SELinux context. The kernel takes the process's context, which a process with several threads cannot change. So a new
 * process makes the tap.
 *
 * @see selinux_tun_dev_create in security/selinux/hooks.c, proc_pid_attr(5)
 */
import { communicate } from "../../ffi/sys/subprocess.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { overwrite } from "../../ffi/sys/file.ts";
import { sys } from "../../ffi/sys/libc.ts";
import { startProgram } from "../../ffi/sys/process.ts";
import { O_CLOEXEC, O_WRONLY } from "../../ffi/sys/uapi.ts";
import type { TapDeviceOptions } from "../lib/links/tap_device_options.ts";
import { CniError, Code } from "../../spec/error.ts";

/** The context of this thread's next program. */
const EXEC_CONTEXT_PATH = "/proc/thread-self/attr/exec";
const OWN_PROGRAM = "/proc/self/exe";
const TIMEOUT_MS = 30_000;
const MAX_OUTPUT_BYTES = 64 * 1024;

/** The tap stays in the thread's namespace. @throws {CniError} */
export function createLabelledTap(context: string, options: TapDeviceOptions): void {
  const child = withExecContext(context, () => {
    try {
      return startProgram(OWN_PROGRAM, [], false, ["tap-device", JSON.stringify(options)]);
    } catch (error) {
      throw error instanceof SystemError ? contextRefusedError(context, error) : error;
    }
  });
  let output = "";
  const onOutput = (bytes: Uint8Array) => void (output += new TextDecoder().decode(bytes));
  const limits = { deadline: performance.now() + TIMEOUT_MS, maxOutputBytes: MAX_OUTPUT_BYTES, processGroup: false };
  const { exitStatus } = communicate(child, new Uint8Array(), onOutput, limits);
  if (exitStatus && "status" in exitStatus && exitStatus.status === 0) return;
  throw new CniError(Code.Internal, `Cannot create tap "${options.name}" in SELinux context "${context}"`, {
    details: output.trim() || "the program that makes it was stopped",
  });
}

function withExecContext<T>(context: string, call: () => T): T {
  try {
    overwrite(EXEC_CONTEXT_PATH, context);
  } catch (error) {
    throw error instanceof SystemError ? contextRefusedError(context, error) : error;
  }
  try {
    return call();
  } finally {
    resetExecContext();
  }
}

/** An empty context lets the policy choose. */
function resetExecContext(): void {
  const fd = sys.open(EXEC_CONTEXT_PATH, O_WRONLY | O_CLOEXEC, 0);
  try {
    sys.write(fd, new Uint8Array(1), 0);
  } finally {
    sys.close(fd);
  }
}

function contextRefusedError(context: string, cause: SystemError): CniError {
  const details = cause.code === "EINVAL"
    ? "the policy has no such context, or this host has no SELinux"
    : "the policy does not allow it";
  return new CniError(Code.Internal, `Cannot use SELinux context "${context}": ${cause.message}`, { details, cause });
}
