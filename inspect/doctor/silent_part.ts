/** A part of the server that has ended leaves what it said of itself. @module */
import { advise, type Finding, warning } from "./finding.ts";

export interface HeardStatus {
  readonly heardAtMs?: number;
  readonly apiProblem?: string;
}

/** While it runs, three minutes of silence are a problem of the API server. */
const SILENT_MS = 5 * 60_000;

/** Empty while it runs, or tells of a problem itself. */
export function describeSilence(part: string, { heardAtMs, apiProblem }: HeardStatus): Finding[] {
  if (heardAtMs === undefined || apiProblem !== undefined || Date.now() - heardAtMs < SILENT_MS) return [];
  return [warning(
    `the server's part "${part}" has heard nothing since ${new Date(heardAtMs).toISOString()}: ` +
      "the kernel has what it had then",
    advise("look whether the server runs (cni serve --status), and at its log"),
  )];
}
