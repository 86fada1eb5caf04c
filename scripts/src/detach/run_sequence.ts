/** Carries out a sequence on a node and checks that every DEL in it succeeds, and that nothing is left in the end. @module */
import { writeFileSync } from "node:fs";
import type { Verb } from "../harness/invocation.ts";
import { type Container, newContainer } from "../harness/networks.ts";
import { resetNode } from "../harness/node.ts";
import { runShell } from "../harness/process.ts";
import type { Driver, DriverInput } from "./drivers.ts";
import { addNamespaceScript, type NodeEvent, runOnHost, triggerEvent } from "./events.ts";
import { findExposedFiles, listRemainingState } from "./remaining_state.ts";
import { CONTAINER_COUNT, newNetwork, type Sequence, type SequenceStep } from "./sequence.ts";
import { runWithInterruption } from "./syscall_hook.ts";

type NetnsKind = Sequence["netns"];
type Meanwhile = { readonly at: number; readonly event: NodeEvent } | undefined;

interface SequenceState {
  readonly driver: Driver;
  readonly kind: Sequence["kind"];
  name: string;
  variant: number;
  /** By network and container: those that a DEL is owed. */
  readonly owedDels: Map<string, { readonly name: string; readonly container: number }>;
}

const containerName = (container: number): string => `c${container}`;
const PLAIN_FILE = "/run/no-namespace";

function containerOf(number: number, netns: NetnsKind = "path"): Container {
  const container = newContainer(containerName(number), 8000 + number);
  const paths = { path: container.netns, empty: "", absent: "/run/netns/absent", file: PLAIN_FILE };
  return { ...container, netns: paths[netns] };
}

const hasVethPair = ({ kind }: SequenceState): boolean => kind === "bridge" || kind === "ptp";

export function runSequence({ kind, first, rest, netns }: Sequence, driver: Driver): void {
  prepareSequence();
  const state: SequenceState = { driver, kind, name: "net", variant: 0, owedDels: new Map() };
  for (const step of [first, ...rest]) runStep(state, step);
  finishSequence(state, hasVethPair(state) ? netns : "path");
}

function prepareSequence(): void {
  resetNode([]);
  const names = ["pristine", ...Array.from({ length: CONTAINER_COUNT }, (_, number) => containerName(number))];
  runShell(names.map(addNamespaceScript).join("\n"));
  writeFileSync(PLAIN_FILE, "");
  runShell("ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up");
  ensureDevices();
}

/** Devices that are given to containers: those of a kind that dies with its namespace are provided once more. */
function ensureDevices(): void {
  for (const name of ["phys0", "phys1"]) {
    const peer = `peer${name}`;
    const make = `ip link del ${peer}; ip link add ${name} type veth peer name ${peer}; ip link set ${peer} up`;
    runOnHost("sh", "-c", `ip link show ${name} >/dev/null || { ${make}; }`);
  }
}

function runStep(state: SequenceState, step: SequenceStep): void {
  if (step.do === "add") add(state, step.container, step.meanwhile);
  else if (step.do === "del") del(state, state.name, step.container, step);
  else if (step.do === "check") call(state, "check", { container: containerOf(step.container) });
  else if (step.do === "gc") call(state, "gc", { valid: step.valid.map(containerName) });
  else if (step.do === "change") state.variant = step.variant;
  else if (step.do === "rename") state.name = state.name === "net" ? "renamed" : "net";
  else if (!isInterfaceLost(state, step.event)) triggerEvent(step.event, containerName(step.container), step.number);
}

const call = (state: SequenceState, verb: Verb, input: DriverInput, name = state.name): string | undefined =>
  state.driver.call(verb, newNetwork(state.kind, name, state.variant), input);

function add(state: SequenceState, container: number, meanwhile: Meanwhile): void {
  const { driver, name, owedDels } = state;
  const key = `${name} ${container}`;
  // Engines may not call ADD twice, as plugins that are called one by one do not know each other.
  if (driver.name === "exec" && owedDels.has(key)) del(state, name, container);
  // However it ends, engines owe it a DEL.
  owedDels.set(key, { name, container });
  withEvent(state, container, meanwhile, () => call(state, "add", { container: containerOf(container) }));
}

/** A DEL by the name of its ADD, with the configuration of now. */
function del(
  state: SequenceState,
  name: string,
  container: number,
  { netns = "path", withoutResult = false, meanwhile }: Partial<Extract<SequenceStep, { do: "del" }>> = {},
): void {
  const input = { container: containerOf(container, netns), withoutResult };
  const error = withEvent(state, container, meanwhile, () => call(state, "del", input, name));
  if (error !== undefined) throw new Error(`DEL of ${containerName(container)} from "${name}": ${error}`);
  // Without an end on the host, only a DEL with the namespace can remove the interface.
  if (hasVethPair(state) || netns === "path") state.owedDels.delete(`${name} ${container}`);
}

/** A renamed interface is found only by its peer on the host; without it DEL takes the namespace for another and leaves the rules in it. */
const isInterfaceLost = (state: SequenceState, event: NodeEvent): boolean =>
  !hasVethPair(state) && /renamed|moved/.test(event) ||
  state.kind === "macvlan" && event === "its interface is deleted";

function withEvent<T>(state: SequenceState, container: number, meanwhile: Meanwhile, command: () => T): T {
  const { driver } = state;
  if (!meanwhile || isInterfaceLost(state, meanwhile.event)) return command();
  const trigger = () => triggerEvent(meanwhile.event, containerName(container), meanwhile.at);
  if (driver.name === "library") return runWithInterruption(meanwhile.at, trigger, command);
  let remaining = meanwhile.at % 5;
  driver.betweenPlugins = () => {
    if (remaining-- === 0) trigger();
  };
  try {
    return command();
  } finally {
    driver.betweenPlugins = undefined;
  }
}

/** Every attachment is removed, twice; then a fresh ADD and DEL work. */
function finishSequence(state: SequenceState, netns: NetnsKind): void {
  for (const { name, container } of [...state.owedDels.values()]) del(state, name, container, { netns });
  requireNothingRemains("After DEL");
  for (let container = 0; container < CONTAINER_COUNT; container++) {
    del(state, state.name, container, { netns, withoutResult: true });
  }
  requireNothingRemains("After a second DEL");
  ensureDevices();
  const last = CONTAINER_COUNT - 1;
  const path = containerOf(last).netns;
  runShell(`mountpoint -q ${path} || { rm -f ${path}; ${addNamespaceScript(containerName(last))}; }`);
  state.variant = 0;
  requireAttached(state, containerOf(last));
  const exposedFiles = findExposedFiles();
  if (exposedFiles.length > 0) throw new Error(`Others may read ${exposedFiles.join(", ")}`);
  del(state, state.name, last);
  requireNothingRemains("After a fresh ADD and DEL");
}

/** A fresh ADD works; where others have lost their rules, it may ask for a restore first. */
function requireAttached(state: SequenceState, container: Container): void {
  for (const verb of ["add", "check"] as const) {
    let error = call(state, verb, { container });
    // On an overloaded machine the kernel may be late to report that an address can be used.
    if (error?.includes("ETIMEDOUT")) {
      call(state, "del", { container });
      error = call(state, verb, { container });
    }
    if (error?.includes("cni run restore")) error = state.driver.restore() ?? call(state, verb, { container });
    if (error !== undefined) throw new Error(`A fresh ${verb} fails: ${error}`);
  }
}

function requireNothingRemains(when: string): void {
  let found = listRemainingState();
  // The kernel removes the links of a deleted namespace with a delay.
  for (const deadline = performance.now() + 500; found.length > 0 && performance.now() < deadline;) {
    Bun.sleepSync(20);
    found = listRemainingState();
  }
  if (found.length > 0) throw new Error(`${when} there is left: ${found.slice(0, 12).join(" | ")}`);
}
