import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Caller, execInvocation, type ProgramCommand, runInvocation } from "../harness/invocation.ts";
import { PLUGIN_DIRECTORY, prepareNode, resetNode } from "../harness/node.ts";
import { NODE_SHIM_DIRECTORY, type NodeServer, startNodeServer } from "../harness/node_server.ts";
import { type ProcessCommand, requireSuccess, runLimited } from "../harness/process.ts";
import { runBesideTracer } from "../harness/tracer.ts";
import { newScratchDirectory } from "../repository.ts";
import { runExperiment } from "./experiment.ts";
import type { Fault } from "./fault.ts";
import { casesOfFaults, type FaultCase, type FaultReport, type FaultSelection, tryCases } from "./fault_case.ts";
import { fileDamageCases } from "./file_damage.ts";
import { healingCases } from "./healing.ts";
import { faultsOfTrace } from "./plan.ts";
import { callChain, FAULTS_NETWORK, type Scenario, SCENARIOS } from "./scenario.ts";
import { straceCommand } from "./strace.ts";

/** Which process of a served call has the fault. */
const SERVED_PROCESSES = ["shim", "worker", "server"] as const;
type ServedProcess = (typeof SERVED_PROCESSES)[number];

/** The process that puts rules back. */
const HEAL = "heal";

export const FAULT_SECTIONS: readonly string[] = [
  ...["run", "exec"].flatMap((invocation) =>
    [...Object.keys(SCENARIOS), "damage"].map((scenario) => `${invocation} ${scenario}`)
  ),
  ...["shim", "worker"].flatMap((process) =>
    ["run", "exec"].flatMap((invocation) =>
      Object.keys(SCENARIOS).map((scenario) => `${process} ${invocation} ${scenario}`)
    )
  ),
  // It takes no part in calls.
  ...["add", "del"].map((scenario) => `server exec ${scenario}`),
  HEAL,
];

export async function* runSection(section: string, selection: FaultSelection): AsyncGenerator<FaultReport> {
  prepareNode();
  using scratch = newScratchDirectory();
  const parts = section.split(" ");
  const served = SERVED_PROCESSES.find((process) => process === parts[0]);
  const [invocation, scenario] = served ? parts.slice(1) : parts;
  const server = served && await startNodeServer();
  const caller = new Caller(
    invocation === "run" || section === HEAL
      ? runInvocation("/run", [], served && `${NODE_SHIM_DIRECTORY}/cni`)
      : execInvocation(served ? NODE_SHIM_DIRECTORY : PLUGIN_DIRECTORY),
  );
  const trace = join(scratch.path, "trace");
  const all = section === HEAL
    ? healingCases(caller, trace)
    : scenario === "damage"
    ? fileDamageCases(caller)
    : faultCases(caller, SCENARIOS[scenario as keyof typeof SCENARIOS], trace, server && { server, process: served });
  const named = all.map((faultCase) => ({ ...faultCase, name: `${section} ${faultCase.name}` }));
  yield* tryCases(named, selection, async () => await server?.restart());
}

/** Faults at all system calls of a command, found by running each of its programs once without a fault. */
function faultCases(
  caller: Caller,
  scenario: Scenario,
  file: string,
  served?: { readonly server: NodeServer; readonly process: ServedProcess },
): readonly FaultCase[] {
  const run = (command: ProcessCommand, fault?: Fault) =>
    !served || served.process === "shim"
      ? runLimited({ ...command, argv: [...straceCommand(file, fault, true), ...command.argv] })
      : runBesideServer(command, served.server, served.process, straceCommand(file, fault, false));
  const log = () => readFileSync(file, "utf8");
  const [isServed, isAttached] = [served !== undefined, served !== undefined && served.process !== "shim"];
  const { verb, container } = scenario;
  const cases = caller.invocation.programs(FAULTS_NETWORK, verb).flatMap((program) => {
    scenario.prepare(caller);
    const runOne = (fault?: Fault) => (command: ProgramCommand) =>
      command.program === program ? run(command, fault) : runLimited(command);
    requireSuccess({ argv: [verb, "without any fault"] }, callChain(caller, verb, container, runOne()));
    const prefix = program === "cni" ? "" : `${program} `;
    return casesOfFaults(
      faultsOfTrace(log(), isAttached),
      prefix,
      (fault) => runExperiment({ caller, scenario, program, fault, isServed, isAttached, log, run: runOne(fault) }),
    );
  });
  resetNode([]);
  return cases;
}

/** Traces all workers, or the server while it replaces a worker. */
function runBesideServer(
  command: ProcessCommand,
  server: NodeServer,
  process: "worker" | "server",
  strace: readonly string[],
) {
  const pids = process === "worker" ? server.workers() : [server.pid];
  return runBesideTracer(strace, pids, () => {
    if (process === "server") globalThis.process.kill(server.workers()[0]!, "SIGKILL");
    return runLimited(command);
  });
}
