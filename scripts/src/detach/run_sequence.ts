/** Carries out a sequence on a node and looks whether every DEL in it succeeds, and whether in the end nothing is left. @module */
import { writeFileSync } from "node:fs";
import { resetNode, runShell } from "../harness/node.ts";
import type { AttachedContainer, CommandAnswer, Driver } from "./drivers.ts";
import { runWithInterruption } from "./syscall_hook.ts";
import { addNamespaceScript, type NodeEvent, runOnHost, triggerEvent } from "./events.ts";
import { findExposedFiles, listLeftovers } from "./leftovers.ts";
import type { DetachNetwork, NetworkKind } from "./networks.ts";
import { CONTAINER_COUNT, type MidCommandEvent, type NetnsNaming, type Sequence, type SequenceStep } from "./steps.ts";

/** Whether a link on the host tells of the one in the container. */
const hasVethPair = (kind: NetworkKind): boolean => kind === "bridge" || kind === "ptp";

/** An attachment that is owed a DEL. */
interface OwedDel {
  readonly network: DetachNetwork;
  readonly who: number;
}

/** The node in the course of a sequence. */
interface SequenceState {
  readonly driver: Driver;
  network: DetachNetwork;
  /** By network and container. */
  readonly owedDels: Map<string, OwedDel>;
  /** Told of every ADD that failed. */
  readonly onAddFailure: (answer: CommandAnswer) => void;
}

const containerName = (who: number): string => `c${who}`;
const owedKey = ({ name }: DetachNetwork, who: number): string => `${name} ${who}`;
const PLAIN_FILE = "/run/no-namespace";

function attachmentOf(who: number, naming: NetnsNaming = "path"): AttachedContainer {
  const paths = { path: `/run/netns/${containerName(who)}`, empty: "", absent: "/run/netns/absent", file: PLAIN_FILE };
  return { id: containerName(who), netns: paths[naming], port: 8000 + who };
}

/** @throws {Error} if a DEL fails, or something is left */
export function runSequence(
  { kind, steps, naming }: Sequence,
  driver: Driver,
  failed: SequenceState["onAddFailure"],
): void {
  prepareNode();
  const state: SequenceState = {
    driver,
    network: { kind, name: "net", variant: 0 },
    owedDels: new Map(),
    onAddFailure: failed,
  };
  for (const step of steps) runStep(state, step);
  finishSequence(state, naming);
}

const HOST_DEVICES = ["up0", "phys0", "phys1"];

function prepareNode(): void {
  resetNode([]);
  const names = ["pristine", ...Array.from({ length: CONTAINER_COUNT }, (_, who) => containerName(who))];
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
      return add(state, step.who, step.meanwhile);
    case "del":
      return del(state, { network: state.network, who: step.who }, step);
    case "check":
      return void state.driver.check(state.network, attachmentOf(step.who));
    case "gc":
      return void state.driver.gc(state.network, step.valid.map(containerName));
    case "happen":
      if (isInterfaceLost(state, step.what)) return;
      return triggerEvent(step.what, containerName(step.who), step.number);
    case "change":
      state.network = { ...state.network, variant: step.variant };
      return;
    case "rename":
      state.network = { ...state.network, name: state.network.name === "net" ? "renamed" : "net" };
      return;
  }
}

function add(state: SequenceState, who: number, meanwhile?: MidCommandEvent): void {
  const { driver, network, owedDels, onAddFailure } = state;
  // Engines may not call ADD twice, as plugins that are called one by one do not know each other.
  const isOwed = owedDels.has(owedKey(network, who));
  if (driver.name === "exec" && isOwed) del(state, { network, who }, { naming: "path", withoutResult: false });
  // Whatever it ends with, engines owe it a DEL.
  owedDels.set(owedKey(network, who), { network, who });
  const answer = withEvent(state, who, meanwhile, () => driver.add(network, attachmentOf(who)));
  if (answer.error !== undefined) onAddFailure(answer);
}

function del(
  state: SequenceState,
  { network, who }: OwedDel,
  options: {
    readonly naming: NetnsNaming;
    readonly withoutResult: boolean;
    readonly meanwhile?: MidCommandEvent | undefined;
  },
): void {
  const { driver, owedDels } = state;
  const { withoutResult, meanwhile } = options;
  const answer = withEvent(
    state,
    who,
    meanwhile,
    () => driver.del(network, attachmentOf(who, options.naming), { withoutResult: withoutResult }),
  );
  if (answer.error !== undefined) {
    throw new Error(`DEL of ${containerName(who)} from "${network.name}": ${answer.error}`);
  }
  // Where nothing is on the host, the interface can be removed by who names the namespace, or with it.
  if (hasVethPair(network.kind) || options.naming === "path") owedDels.delete(owedKey(network, who));
}

/**
 * What was given another name is not found again, other than a cable, whose other end says whose it is. Where the interface is removed, the
 * container counts as another one, and the rules in it that led to its tables stay.
 */
const isInterfaceLost = ({ network: { kind } }: SequenceState, what: NodeEvent): boolean =>
  !hasVethPair(kind) && /renamed|moved/.test(what) || kind === "macvlan" && what === "its interface is deleted";

/** Carries out a command in the middle of which something happens. */
function withEvent(
  state: SequenceState,
  who: number,
  meanwhile: MidCommandEvent | undefined,
  command: () => CommandAnswer,
): CommandAnswer {
  const { driver } = state;
  if (!meanwhile || isInterfaceLost(state, meanwhile.what)) return command();
  const trigger = () => triggerEvent(meanwhile.what, containerName(who), meanwhile.at);
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

/** Everything is removed, once and once more; then it can be had again, and goes again. */
function finishSequence(state: SequenceState, naming: NetnsNaming): void {
  const { driver, owedDels, network } = state;
  const ending = hasVethPair(network.kind) ? naming : "path";
  // Under the name of then, with the configuration of now.
  for (const { network: { name }, who } of [...owedDels.values()]) {
    del(state, { network: { ...network, name }, who }, { naming: ending, withoutResult: false });
  }
  requireNoLeftovers("After DEL");
  for (let who = 0; who < CONTAINER_COUNT; who++) del(state, { network, who }, { naming: ending, withoutResult: true });
  requireNoLeftovers("After a second DEL");
  ensureDevices();
  const who = CONTAINER_COUNT - 1;
  const { netns } = attachmentOf(who);
  runShell(`mountpoint -q ${netns} || { rm -f ${netns}; ${addNamespaceScript(containerName(who))}; }`);
  const freshNetwork = { ...network, variant: 0 };
  requireAttached(driver, freshNetwork, attachmentOf(who));
  const exposedFiles = findExposedFiles();
  if (exposedFiles.length > 0) throw new Error(`Others may read ${exposedFiles.join(", ")}`);
  del(state, { network: freshNetwork, who }, { naming: "path", withoutResult: false });
  requireNoLeftovers("After a fresh ADD and DEL");
}

/** A fresh ADD works, though it may ask for the rules of all to be put back first, as long as others are there that have lost theirs too. */
function requireAttached(caller: Driver, network: DetachNetwork, container: AttachedContainer): void {
  for (const verb of ["add", "check"] as const) {
    const call = () => caller[verb](network, container);
    let answer = call();
    // On a machine with far more to do than it can, the kernel may be late with the news that an address can be used.
    if (answer.error?.includes("ETIMEDOUT")) {
      caller.del(network, container, { withoutResult: false });
      answer = call();
    }
    if (answer.error?.includes("cni run restore")) {
      const { error } = caller.restore();
      answer = error === undefined ? call() : { error: `${answer.error}; ${error}` };
    }
    if (answer.error !== undefined) throw new Error(`A fresh ${verb} fails: ${answer.error}`);
  }
}

function requireNoLeftovers(when: string): void {
  let found = listLeftovers();
  // Of a namespace that went, the kernel removes what was in it when it has time.
  for (const deadline = performance.now() + 500; found.length > 0 && performance.now() < deadline;) {
    Bun.sleepSync(20);
    found = listLeftovers();
  }
  if (found.length > 0) throw new Error(`${when} there is left: ${found.slice(0, 12).join(" | ")}`);
}
