/** A part of the server that has ended leaves what it said of itself. @module */
import { isCurrent, type StatusOrigin } from "../../cluster/status_file.ts";
import { advise, type Finding, warning } from "./finding.ts";

/** A part that works says something every ten seconds. */
const SILENT_MS = 60_000;

/** Empty while the part works. */
export function describeSilence(part: string, status: StatusOrigin): Finding[] {
  const { writtenAtMs } = status;
  const isRunning = isCurrent(status);
  if (isRunning && writtenAtMs !== undefined && Date.now() - writtenAtMs < SILENT_MS) return [];
  const since = writtenAtMs === undefined ? "" : ` since ${new Date(writtenAtMs).toISOString()}`;
  return [warning(
    `cni serve's part "${part}" ${isRunning ? "has said nothing" : "has not run"}${since}: ` +
      "the kernel has what it had then",
    advise("look whether the server runs (cni serve --status), and in its log for why the part does not"),
  )];
}
