/** Asks `cni serve` for a pod's policies. */
import { bootTimeMs } from "../../ffi/sys/boot_clock.ts";
import { parentOf } from "../../ffi/sys/directory.ts";
import { sleep } from "../../ffi/sys/poll.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import { askLine, type LineAnswer, type LineProblem } from "../lib/policy/ask_line.ts";
import type {
  AttachAnswer,
  AttachRequest,
  DeleteFlowsRequest,
  SyncedQuestion,
  VerdictsQuestion,
} from "../lib/policy/attach_request.ts";
import { throwIfSignalled } from "../lib/protocol/signal.ts";

export type PodAnswer = AttachAnswer | LineProblem;

export function askPart(path: string, question: AttachRequest, waitMs: number): PodAnswer {
  const found = askFromBootOn(path, question, waitMs);
  if ("problem" in found) {
    throwIfSignalled();
    return found;
  }
  const { state, areFlowsDeleted } = found.answer;
  if (state === "enforced" || state === "closed") return { state, areFlowsDeleted: areFlowsDeleted === true };
  return { problem: `its answer is ${JSON.stringify(found.answer).slice(0, 100)}` };
}

const START_POLL_MS = 50;

/** Engines may start pods before the server that has their policies, and whose network has their routes. */
function askFromBootOn(path: string, question: AttachRequest, waitMs: number): LineAnswer {
  const deadline = performance.now() + waitMs;
  let isFirstStart: boolean | undefined;
  while (true) {
    const remainingMs = Math.max(0, Math.ceil(deadline - performance.now()));
    const found = askLine(path, question, remainingMs);
    if (!("isAbsent" in found) || remainingMs === 0) return found;
    isFirstStart ??= !hasRunSinceBoot(path);
    if (!isFirstStart) return found;
    throwIfSignalled();
    sleep(Math.min(START_POLL_MS, remainingMs));
  }
}

/** The directory is in memory, and stays. */
const hasRunSinceBoot = (path: string): boolean => findStat(parentOf(path)) !== undefined;

/** It says so at once. */
const KNOWN_WAIT_MS = 500;

/** Whether somebody puts back what the kernel has lost. */
export function isPartSynced(path: string): boolean {
  const question: SyncedQuestion = { question: "synced" };
  const found = askLine(path, question, KNOWN_WAIT_MS);
  return "answer" in found && found.answer.isSynced === true;
}

/** What the kernel lacks of what these addresses are to have, as far as somebody knows. */
export function askForWrongVerdicts(path: string, ips: readonly string[]): readonly unknown[] {
  const question: VerdictsQuestion = { question: "verdicts", ips };
  const found = askLine(path, question, KNOWN_WAIT_MS);
  return "answer" in found && Array.isArray(found.answer.wrong) ? found.answer.wrong : [];
}

/** A hundred thousand flows take it a quarter of a second. */
export const DELETE_FLOWS_MS = 1000;
/** It says when it could not. */
const ANSWER_MS = 500;

/** @returns whether somebody has deleted the flows that these addresses began, or answer */
export function askToDeleteFlows(path: string, ips: readonly string[]): boolean {
  const request: DeleteFlowsRequest = {
    question: "delete-flows",
    ips,
    deleteFlowsUntilMs: bootTimeMs() + DELETE_FLOWS_MS,
  };
  const found = askLine(path, request, DELETE_FLOWS_MS + ANSWER_MS);
  return "answer" in found && found.answer.areFlowsDeleted === true;
}
