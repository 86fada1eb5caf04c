/** Carries out a sequence on a node and checks that every DEL in it succeeds, and that nothing is left in the end. @module */
import { writeFileSync } from "node:fs";
import { type Container, newContainer } from "../harness/container.ts";
import { resetNode } from "../harness/node.ts";
import { runShell } from "../harness/process.ts";
import type { CommandAnswer, Driver } from "./drivers.ts";
import { runWithInterruption } from "./syscall_hook.ts";
import { addNamespaceScript, type NodeEvent, runOnHost, triggerEvent } from "./events.ts";
import { findExposedFiles, listRemainingState } from "./remaining_state.ts";
import type { DetachNetwork, NetworkKind } from "./networks.ts";
import { CONTAINER_COUNT, type MidCommandEvent, type NetnsKind, type Sequence, type SequenceStep } from "./steps.ts";

/** Whether the interface of the container has a peer on the host. */
const hasVethPair = (kind: NetworkKind): boolean => kind === "bridge" || kind === "ptp";

/** An attachment that is owed a DEL. */
interface OwedDel {
  readonly network: DetachNetwork;
  readonly container: number;
}

/** The node in the course of a sequence. */
interface SequenceState {
  readonly driver: Driver;
  network: DetachNetwork;
  /** By network and container. */
  readonly owedDels: Map<string, OwedDel>;
  /** Called for every ADD that failed. */
  readonly onAddFailure: (answer: CommandAnswer) => void;
}

const containerName = (container: number): string => `c${container}`;
const owedKey = ({ name }: DetachNetwork, container: number): string => `${name} ${container}`;
const PLAIN_FILE = "/run/no-namespace";

function containerOf(number: number, kind: NetnsKind = "path"): Container {
  const container = newContainer(containerName(number), 8000 + number);
  const paths = { path: container.netns, empty: "", absent: "/run/netns/absent", file: PLAIN_FILE };
  return { ...container, netns: paths[kind] };
}

/** @throws {Error} if a DEL fails, or something is left */
export function runSequence(
  { kind, steps, netns }: Sequence,
  driver: Driver,
  onAddFailure: SequenceState["onAddFailure"],
): void {
  prepareNode();
  const state: SequenceState = {
    driver,
    network: { kind, name: "net", variant: 0 },
    owedDels: new Map(),
    onAddFailure,
  };
  for (const step of steps) runStep(state, step);
  finishSequence(state, netns);
}

const HOST_DEVICES = ["up0", "phys0", "phys1"];

function prepareNode(): void {
  resetNode([]);
  const names = ["pristine", ...Array.from({ length: CONTAINER_COUNT }, (_, number) => containerName(number))];
  runShell(names.map(addNamespaceScript).join("\n"));
  writeFileSync(PLAIN_FILE, "");
  runShell("ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up");
  ensureDevices();
}

/** Devices that are given to containers: those of a kind that dies with its namespace are provided once more. */
function ensureDevices(): void {
  for (const name of HOST_DEVICES.slice(1)) {
    const make =
      `ip link del peer${name}; ip link add ${name} type veth peer name peer${name}; ip link set peer${name} up`;
    runOnHost("sh", "-c", `ip link show ${name} >/dev/null || { ${make}; }`);
  }
}

function runStep(state: SequenceState, step: SequenceStep): void {
  switch (step.do) {
    case "add":
      return add(state, step.container, step.meanwhile);
    case "del":
      return del(state, { network: state.network, container: step.container }, step);
    case "check":
      return void state.driver.check(state.network, containerOf(step.container));
    case "gc":
      return void state.driver.gc(state.network, step.valid.map(containerName));
    case "event":
      if (isInterfaceLost(state, step.event)) return;
      return triggerEvent(step.event, containerName(step.container), step.number);
    case "change":
      state.network = { ...state.network, variant: step.variant };
      return;
    case "rename":
      state.network = { ...state.network, name: state.network.name === "net" ? "renamed" : "net" };
      return;
  }
}

function add(state: SequenceState, container: number, meanwhile?: MidCommandEvent): void {
  const { driver, network, owedDels, onAddFailure } = state;
  // Engines may not call ADD twice, as plugins that are called one by one do not know each other.
  const isOwed = owedDels.has(owedKey(network, container));
  if (driver.name === "exec" && isOwed) del(state, { network, container }, { netns: "path", withoutResult: false });
  // Whatever it ends with, engines owe it a DEL.
  owedDels.set(owedKey(network, container), { network, container });
  const answer = withEvent(state, container, meanwhile, () => driver.add(network, containerOf(container)));
  if (answer.error !== undefined) onAddFailure(answer);
}

function del(
  state: SequenceState,
  { network, container }: OwedDel,
  options: {
    readonly netns: NetnsKind;
    readonly withoutResult: boolean;
    readonly meanwhile?: MidCommandEvent | undefined;
  },
): void {
  const { driver, owedDels } = state;
  const { netns, withoutResult, meanwhile } = options;
  const answer = withEvent(
    state,
    container,
    meanwhile,
    () => driver.del(network, containerOf(container, netns), { withoutResult }),
  );
  if (answer.error !== undefined) {
    throw new Error(`DEL of ${containerName(container)} from "${network.name}": ${answer.error}`);
  }
  // Without an end on the host, only a DEL with the namespace can remove the interface.
  if (hasVethPair(network.kind) || netns === "path") owedDels.delete(owedKey(network, container));
}

/**
 * An interface that was renamed is found again only by its peer on the host. Without the interface DEL takes the namespace for another
 * one, and the rules in it stay.
 */
const isInterfaceLost = ({ network: { kind } }: SequenceState, event: NodeEvent): boolean =>
  !hasVethPair(kind) && /renamed|moved/.test(event) || kind === "macvlan" && event === "its interface is deleted";

/** Carries out a command in the middle of which an event happens. */
function withEvent(
  state: SequenceState,
  container: number,
  meanwhile: MidCommandEvent | undefined,
  command: () => CommandAnswer,
): CommandAnswer {
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
  const { driver, owedDels, network } = state;
  const ending = hasVethPair(network.kind) ? netns : "path";
  // By the name of its ADD, with the configuration of now.
  for (const { network: { name }, container } of [...owedDels.values()]) {
    del(state, { network: { ...network, name }, container }, { netns: ending, withoutResult: false });
  }
  requireNothingRemains("After DEL");
  for (let container = 0; container < CONTAINER_COUNT; container++) {
    del(state, { network, container }, { netns: ending, withoutResult: true });
  }
  requireNothingRemains("After a second DEL");
  ensureDevices();
  const last = CONTAINER_COUNT - 1;
  const path = containerOf(last).netns;
  runShell(`mountpoint -q ${path} || { rm -f ${path}; ${addNamespaceScript(containerName(last))}; }`);
  const freshNetwork = { ...network, variant: 0 };
  requireAttached(driver, freshNetwork, containerOf(last));
  const exposedFiles = findExposedFiles();
  if (exposedFiles.length > 0) throw new Error(`Others may read ${exposedFiles.join(", ")}`);
  del(state, { network: freshNetwork, container: last }, { netns: "path", withoutResult: false });
  requireNothingRemains("After a fresh ADD and DEL");
}

/** A fresh ADD works; where others have lost their rules, it may ask for a restore first. */
function requireAttached(driver: Driver, network: DetachNetwork, container: Container): void {
  for (const verb of ["add", "check"] as const) {
    const call = () => driver[verb](network, container);
    let answer = call();
    // On an overloaded machine the kernel may be late to report that an address can be used.
    if (answer.error?.includes("ETIMEDOUT")) {
      driver.del(network, container, { withoutResult: false });
      answer = call();
    }
    if (answer.error?.includes("cni run restore")) {
      const { error } = driver.restore();
      answer = error === undefined ? call() : { error: `${answer.error}; ${error}` };
    }
    if (answer.error !== undefined) throw new Error(`A fresh ${verb} fails: ${answer.error}`);
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
