/** Asks `cni serve` for a pod's policies. */
import { askLine } from "../lib/policy/ask_line.ts";
import type { AttachAnswer, AttachRequest, SyncedQuestion } from "../lib/policy/attach_request.ts";
import { throwIfSignalled } from "../lib/protocol/signal.ts";

export type PodAnswer = AttachAnswer | { readonly problem: string };

export function askPart(path: string, question: AttachRequest, waitMs: number): PodAnswer {
  const found = askLine(path, question, waitMs);
  if ("problem" in found) {
    throwIfSignalled();
    return found;
  }
  const { state } = found.answer;
  if (state === "enforced" || state === "closed") return { state };
  return { problem: `its answer is ${JSON.stringify(found.answer).slice(0, 100)}` };
}

/** It says so at once. */
const SYNCED_WAIT_MS = 500;

/** Whether somebody puts back what the kernel has lost. */
export function isPartSynced(path: string): boolean {
  const question: SyncedQuestion = { question: "synced" };
  const found = askLine(path, question, SYNCED_WAIT_MS);
  return "answer" in found && found.answer.isSynced === true;
}
