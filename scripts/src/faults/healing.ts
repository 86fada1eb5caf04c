/** Faults of the process that puts rules back. The server starts it again when it has ended. @module */
import { readFileSync } from "node:fs";
import type { Caller } from "../harness/invocation.ts";
import { requireSameState } from "../harness/node_state.ts";
import { WITHOUT_SYSTEM_BUS } from "../harness/node.ts";
import { CNI_PROGRAM } from "../repository.ts";
import { type ProcessResult, requireSuccess, runLimited, runShell } from "../harness/process.ts";
import type { Fault } from "./fault.ts";
import { casesOfFaults, failedOutcome, type FaultCase, type FaultOutcome } from "./fault_case.ts";
import { faultsOfTrace, wasReached } from "./plan.ts";
import { mustSucceed, SCENARIOS, TEST_CONTAINER } from "./scenario.ts";
import { straceCommand } from "./strace.ts";

const SETTINGS = {
  parts: ["heal"],
  socket: "/run/cni/cni.sock",
  directory: "/run/cni",
  logFormat: "text",
  confDirectory: "/etc/cni/net.d",
  pluginDirectories: [],
  cacheDirectories: ["/var/lib/cni"],
  healLinks: false,
};
/** The descriptor that ends the process can be read at once: it looks once, as at each start. */
const DESCRIPTORS = "3</dev/null 4</dev/null 5>/dev/null";
const LOSS = "nft delete table inet cni";
const SLOW_MS = 10_000;

/** Faults at all system calls of one look, after which another process looks again. */
export function healingCases(caller: Caller, file: string): readonly FaultCase[] {
  const scenario = SCENARIOS.del;
  const heal = (strace: readonly string[] = []) => {
    const command = [CNI_PROGRAM, "serve-part", "heal", JSON.stringify(SETTINGS)];
    return runLimited({
      argv: ["sh", "-c", `exec "$@" ${DESCRIPTORS}`, "sh", ...strace, ...command],
      env: WITHOUT_SYSTEM_BUS,
    });
  };
  const log = () => readFileSync(file, "utf8");
  const prepare = () => {
    scenario.prepare(caller);
    mustSucceed(caller, "add", TEST_CONTAINER);
  };
  prepare();
  const before = scenario.snapshot();
  runShell(LOSS);
  requireSuccess({ argv: ["heal", "without any fault"] }, heal(straceCommand(file, undefined, true)));
  requireSameState("Without any fault", before, scenario.snapshot());
  const tryFault = (fault: Fault): FaultOutcome => {
    runShell(LOSS);
    const ended = heal(straceCommand(file, fault, true));
    const output = ended.stderr.trim();
    try {
      if (ended.ms > SLOW_MS) throw new Error(`It took ${Math.round(ended.ms)} ms`);
      requireSuccess({ argv: ["heal", "again"] }, heal());
      requireSameState("After the next look", before, scenario.snapshot());
      return { result: resultOf(fault, ended, log()), output };
    } catch (error) {
      prepare();
      return { ...failedOutcome(error), output };
    }
  };
  return casesOfFaults(faultsOfTrace(log()), "", tryFault);
}

function resultOf(fault: Fault, { exitCode, signal }: ProcessResult, log: string): FaultOutcome["result"] {
  if (!wasReached(log, fault)) return "not reached";
  if (signal !== null) return "ended";
  return exitCode === 0 ? "succeeded" : "refused";
}
