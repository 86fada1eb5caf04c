import { ignoreSystemErrors } from "../ffi/sys/error.ts";
import { copyDescriptor, type Descriptor, descriptor } from "../ffi/sys/file.ts";
import { sys } from "../ffi/sys/libc.ts";
import { pollFor } from "../ffi/sys/poll.ts";
import { fstat } from "../ffi/sys/stat.ts";
import { O_CLOEXEC, O_NONBLOCK, O_WRONLY, PIPE_BUF, POLLOUT } from "../ffi/sys/uapi.ts";
import { COMMAND_NAME } from "../program/installed_file.ts";
import { printable } from "../spec/printable.ts";
import type { ShimCall } from "./call.ts";

/**
 * A pipe is opened anew: the server's own descriptor shares its mode with that of its starter. Two processes may both
 * see room for a line in the pipe, and the second must not wait.
 */
export function openLog(): Descriptor {
  const open = () => descriptor(sys.open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC, 0));
  return (fstat(2).isPipe ? ignoreSystemErrors(open) : undefined) ?? copyDescriptor(2);
}

export function logCall(fd: number, format: "text" | "json", call: ShimCall, status: number, ms: number): void {
  const entry = describeCall(call, status, ms);
  writeLine(fd, format === "json" ? formatJson(entry) : formatText(entry));
}

/** Opens the log with the first message. Details are for programs alone. */
export function messageLogger(format: "text" | "json"): (message: string, details?: object) => void {
  let log: Descriptor | undefined;
  return (message, details) => {
    log ??= openLog();
    writeLine(log.fd, format === "json" ? formatJson({ message, ...details }) : `cni: ${message}`);
  };
}

const formatJson = (entry: object): string => JSON.stringify({ time: new Date().toISOString(), ...entry });

/** Drops what finds no room, if nobody reads the log: a full pipe must not stop calls. */
function writeLine(fd: number, line: string): void {
  const bytes = new TextEncoder().encode(`${line}\n`);
  ignoreSystemErrors(() => {
    for (let written = 0; written < bytes.length && pollFor(fd, POLLOUT, 0);) {
      written += sys.write(fd, bytes.subarray(written), Math.min(PIPE_BUF, bytes.length - written));
    }
  });
}

interface CallEntry {
  readonly program: string;
  readonly arguments?: readonly string[];
  readonly command?: string;
  readonly containerId?: string;
  readonly ifname?: string;
  readonly netns?: string;
  readonly caller: number;
  readonly status: number;
  readonly ms: number;
}

function describeCall({ programName, argv, env, parentPid }: ShimCall, status: number, durationMs: number): CallEntry {
  return {
    program: programName,
    ...programName === COMMAND_NAME ? { arguments: argv } : {
      command: env.CNI_COMMAND ?? "",
      containerId: env.CNI_CONTAINERID ?? "",
      ifname: env.CNI_IFNAME ?? "",
      netns: env.CNI_NETNS ?? "",
    },
    caller: parentPid,
    status,
    ms: Math.round(durationMs * 100) / 100,
  };
}

/** `bridge ADD c1 eth0 /run/netns/c1: 4.21 ms, status 0, called by 4711` */
function formatText({ caller, status, ms, arguments: argv = [], ...names }: CallEntry): string {
  const words = [...Object.values(names), ...argv].filter((word) => word !== "");
  return `${printable(words.join(" "))}: ${ms} ms, status ${status}, called by ${caller}`;
}
