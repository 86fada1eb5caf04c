/** What workers and parts tell the metrics, over a pipe: a line of JSON each. @module */
import { ignoreErrors } from "../ffi/sys/error.ts";
import { sys } from "../ffi/sys/libc.ts";

export interface CallReport {
  /** A plugin's name, or `cni`. */
  readonly program: string;
  readonly command: string;
  /** The error's code (SPEC §Error); 0 after success. */
  readonly code: number;
  readonly seconds: number;
  /** The part without a processor, such as in kernel waits. */
  readonly waitSeconds: number;
}

export interface CountReport {
  readonly counter: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly count: number;
}

export type Report = CallReport | CountReport;

/** Drops it if the pipe is full: nobody waits for metrics. */
export function sendReport(pipe: number, report: Report): void {
  const bytes = new TextEncoder().encode(`${JSON.stringify(report)}\n`);
  ignoreErrors(["EAGAIN", "EPIPE"], () => sys.write(pipe, bytes, bytes.length));
}
