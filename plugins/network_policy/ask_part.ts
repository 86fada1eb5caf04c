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
  const found = askWhetherSynced(path, KNOWN_WAIT_MS);
  return "answer" in found && found.answer.isSynced === true;
}

function askWhetherSynced(path: string, waitMs: number): LineAnswer {
  const question: SyncedQuestion = { question: "synced" };
  return askLine(path, question, waitMs);
}

/** What the kernel lacks of what these addresses are to have, as far as somebody knows. */
export function askForWrongVerdicts(path: string, ips: readonly string[]): readonly unknown[] {
  const question: VerdictsQuestion = { question: "verdicts", ips };
  const found = askLine(path, question, KNOWN_WAIT_MS);
  return "answer" in found && Array.isArray(found.answer.wrong) ? found.answer.wrong : [];
}

/**
 * A walk over two hundred thousand flows takes a part with other work half a second, and waits for the one before it.
 * Plugins that stop waiting walk by themselves, all at once.
 */
const DELETE_FLOWS_MS = 10_000;
/** It says when it could not. */
const ANSWER_MS = 500;
/** One that hangs is not waited for as long as one that works, which says something else at once. */
const FIRST_ANSWER_MS = 1500;

/** @returns whether somebody has deleted the flows that these addresses began, or answer */
export function askToDeleteFlows(path: string, ips: readonly string[]): boolean {
  if (!("answer" in askWhetherSynced(path, FIRST_ANSWER_MS))) return false;
  const request: DeleteFlowsRequest = {
    question: "delete-flows",
    ips,
    deleteFlowsUntilMs: bootTimeMs() + DELETE_FLOWS_MS,
  };
  const found = askLine(path, request, DELETE_FLOWS_MS + ANSWER_MS);
  return "answer" in found && found.answer.areFlowsDeleted === true;
}

/** @param waitMs how long the plugin waits for the pod's policies too */
export const deleteFlowsUntilMs = (waitMs: number): number => bootTimeMs() + Math.max(waitMs / 2, waitMs - ANSWER_MS);
