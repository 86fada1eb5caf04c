/** What workers and parts tell the metrics, over a pipe: a line of JSON each. @module */
import { ignoreErrors } from "../ffi/sys/error.ts";
import { sys } from "../ffi/sys/libc.ts";

/** One call that a worker has done. */
export interface CallReport {
  /** A plugin, or `cni`. */
  readonly program: string;
  /** `ADD`, or `run add` */
  readonly command: string;
  /** Of the error (SPEC, section Error); 0 after success. */
  readonly code: number;
  readonly seconds: number;
  /** Of these: not on a processor, such as in kernel waits. */
  readonly waitSeconds: number;
}

/** Something that a part has done `count` times. */
export interface CountReport {
  /** `cni_restores_total` */
  readonly counter: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly count: number;
}

export type Report = CallReport | CountReport;

/** Writes it, unless the pipe is full: nobody waits for metrics. */
export function sendReport(pipe: number, report: Report): void {
  const bytes = new TextEncoder().encode(`${JSON.stringify(report)}\n`);
  ignoreErrors(["EAGAIN", "EPIPE"], () => sys.write(pipe, bytes, bytes.length));
}
