/** The line is the last one of a terminal's standard error. @module */
import { writeStderr } from "../../ffi/sys/stdio.ts";
import type { MessageSink } from "../arguments/runtime.ts";
import { openScreen } from "./screen.ts";

// Work that ends before shows no progress.
const DELAY_MS = 1000;
const INTERVAL_MS = 100;
// To the line's first column, and the line empty (ECMA-48, EL).
const CLEAR_LINE = "\r\u001b[K";

/** It writes nothing on anything but a terminal. */
export interface ProgressLine extends Disposable {
  report(done: number, total: number): void;
  above(sink: MessageSink): MessageSink;
}

/** @param now in milliseconds */
export function openProgressLine(
  title: string,
  env: Readonly<Record<string, string | undefined>>,
  now: () => number = () => performance.now(),
): ProgressLine {
  const isShown = openScreen(2, env).isTerminal && env["TERM"] !== "dumb";
  let next = now() + DELAY_MS;
  let isThere = false;
  const clear = () => {
    if (isThere) writeStderr(CLEAR_LINE);
    isThere = false;
  };
  return {
    report(done, total) {
      if (done === total) return clear();
      if (!isShown || now() < next) return;
      next = now() + INTERVAL_MS;
      writeStderr(`${CLEAR_LINE}${title}: ${Math.floor((100 * done) / total)} %`);
      isThere = true;
    },
    above: ({ log, pluginLog }) => ({
      log(message) {
        clear();
        log(message);
      },
      pluginLog(message) {
        clear();
        pluginLog(message);
      },
    }),
    [Symbol.dispose]: clear,
  };
}
