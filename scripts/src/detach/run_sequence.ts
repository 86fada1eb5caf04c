/** Carries out a sequence on a node and looks whether every DEL in it succeeds, and whether in the end nothing is left. @module */
import { writeFileSync } from "node:fs";
import { cleanNode, sh } from "../harness/node.ts";
import type { Answer, Attached, Caller } from "./drivers.ts";
import { during } from "./syscall_hook.ts";
import { happen, type Happening, newNamespace, onHost } from "./events.ts";
import { exposed, leftovers } from "./leftovers.ts";
import type { Kind, Network } from "./networks.ts";
import { CONTAINERS, type Meanwhile, type Naming, type Sequence, type Step } from "./steps.ts";

/** Whether a link on the host tells of the one in the container. */
const hasCable = (kind: Kind): boolean => kind === "bridge" || kind === "ptp";

/** An attachment that is owed a DEL. */
interface Debt {
  readonly network: Network;
  readonly who: number;
}

/** The node in the course of a sequence. */
interface Course {
  readonly caller: Caller;
  network: Network;
  /** By network and container. */
  readonly debts: Map<string, Debt>;
  /** Told of every ADD that failed. */
  readonly failed: (answer: Answer) => void;
}

const nameOf = (who: number): string => `c${who}`;
const keyOf = ({ name }: Network, who: number): string => `${name} ${who}`;
const FILE = "/run/no-namespace";

function attached(who: number, naming: Naming = "path"): Attached {
  const paths = { path: `/run/netns/${nameOf(who)}`, empty: "", absent: "/run/netns/absent", file: FILE };
  return { id: nameOf(who), netns: paths[naming], port: 8000 + who };
}

/** @throws {Error} if a DEL fails, or something is left */
export function attempt({ kind, steps, naming }: Sequence, caller: Caller, failed: Course["failed"]): void {
  prepare();
  const course: Course = { caller, network: { kind, name: "net", variant: 0 }, debts: new Map(), failed };
  for (const step of steps) take(course, step);
  finish(course, naming);
}

const UPLINKS = ["up0", "phys0", "phys1"];

function prepare(): void {
  cleanNode([]);
  const names = ["pristine", ...Array.from({ length: CONTAINERS }, (_, who) => nameOf(who))];
  sh(names.map(newNamespace).join("\n"));
  writeFileSync(FILE, "");
  sh("ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up");
  provideDevices();
}

/** Devices that are given to containers: those of a kind that dies with its namespace are provided once more. */
function provideDevices(): void {
  for (const name of UPLINKS.slice(1)) {
    const make =
      `ip link del peer${name}; ip link add ${name} type veth peer name peer${name}; ip link set peer${name} up`;
    onHost("sh", "-c", `ip link show ${name} >/dev/null || { ${make}; }`);
  }
}

function take(course: Course, step: Step): void {
  switch (step.do) {
    case "add":
      return add(course, step.who, step.meanwhile);
    case "del":
      return del(course, { network: course.network, who: step.who }, step);
    case "check":
      return void course.caller.check(course.network, attached(step.who));
    case "gc":
      return void course.caller.gc(course.network, step.valid.map(nameOf));
    case "happen":
      if (isLost(course, step.what)) return;
      return happen(step.what, nameOf(step.who), step.number);
    case "change":
      course.network = { ...course.network, variant: step.variant };
      return;
    case "rename":
      course.network = { ...course.network, name: course.network.name === "net" ? "renamed" : "net" };
      return;
  }
}

function add(course: Course, who: number, meanwhile?: Meanwhile): void {
  const { caller, network, debts, failed } = course;
  // Engines may not call ADD twice, as plugins that are called one by one do not know each other.
  const isOwed = debts.has(keyOf(network, who));
  if (caller.name === "exec" && isOwed) del(course, { network, who }, { naming: "path", forgetful: false });
  // Whatever it ends with, engines owe it a DEL.
  debts.set(keyOf(network, who), { network, who });
  const answer = amid(course, who, meanwhile, () => caller.add(network, attached(who)));
  if (answer.error !== undefined) failed(answer);
}

function del(
  course: Course,
  { network, who }: Debt,
  how: { readonly naming: Naming; readonly forgetful: boolean; readonly meanwhile?: Meanwhile | undefined },
): void {
  const { caller, debts } = course;
  const { forgetful, meanwhile } = how;
  const answer = amid(course, who, meanwhile, () => caller.del(network, attached(who, how.naming), { forgetful }));
  if (answer.error !== undefined) throw new Error(`DEL of ${nameOf(who)} from "${network.name}": ${answer.error}`);
  // Where nothing is on the host, the interface can be removed by who names the namespace, or with it.
  if (hasCable(network.kind) || how.naming === "path") debts.delete(keyOf(network, who));
}

/**
 * What was given another name is not found again, other than a cable, whose other end says whose it is. Where the interface is removed, the
 * container counts as another one, and the rules in it that led to its tables stay.
 */
const isLost = ({ network: { kind } }: Course, what: Happening): boolean =>
  !hasCable(kind) && /renamed|moved/.test(what) || kind === "macvlan" && what === "its interface is deleted";

/** Carries out a command in the middle of which something happens. */
function amid(course: Course, who: number, meanwhile: Meanwhile | undefined, command: () => Answer): Answer {
  const { caller } = course;
  if (!meanwhile || isLost(course, meanwhile.what)) return command();
  const act = () => happen(meanwhile.what, nameOf(who), meanwhile.at);
  if (caller.name === "library") return during(meanwhile.at, act, command);
  let left = meanwhile.at % 5;
  caller.between = () => {
    if (left-- === 0) act();
  };
  try {
    return command();
  } finally {
    caller.between = undefined;
  }
}

/** Everything is removed, once and once more; then it can be had again, and goes again. */
function finish(course: Course, naming: Naming): void {
  const { caller, debts, network } = course;
  const ending = hasCable(network.kind) ? naming : "path";
  // Under the name of then, with the configuration of now.
  for (const { network: { name }, who } of [...debts.values()]) {
    del(course, { network: { ...network, name }, who }, { naming: ending, forgetful: false });
  }
  requireNothing("After DEL");
  for (let who = 0; who < CONTAINERS; who++) del(course, { network, who }, { naming: ending, forgetful: true });
  requireNothing("After a second DEL");
  provideDevices();
  const who = CONTAINERS - 1;
  const { netns } = attached(who);
  sh(`mountpoint -q ${netns} || { rm -f ${netns}; ${newNamespace(nameOf(who))}; }`);
  const again = { ...network, variant: 0 };
  requireAttached(caller, again, attached(who));
  const open = exposed();
  if (open.length > 0) throw new Error(`Others may read ${open.join(", ")}`);
  del(course, { network: again, who }, { naming: "path", forgetful: false });
  requireNothing("After a fresh ADD and DEL");
}

/** A fresh ADD works, though it may ask for the rules of all to be put back first, as long as others are there that have lost theirs too. */
function requireAttached(caller: Caller, network: Network, container: Attached): void {
  for (const verb of ["add", "check"] as const) {
    const call = () => caller[verb](network, container);
    let answer = call();
    // On a machine with far more to do than it can, the kernel may be late with the news that an address can be used.
    if (answer.error?.includes("ETIMEDOUT")) {
      caller.del(network, container, { forgetful: false });
      answer = call();
    }
    if (answer.error?.includes("cni run restore")) {
      const { error } = caller.restore();
      answer = error === undefined ? call() : { error: `${answer.error}; ${error}` };
    }
    if (answer.error !== undefined) throw new Error(`A fresh ${verb} fails: ${answer.error}`);
  }
}

function requireNothing(when: string): void {
  let found = leftovers();
  // Of a namespace that went, the kernel removes what was in it when it has time.
  for (const deadline = performance.now() + 500; found.length > 0 && performance.now() < deadline;) {
    Bun.sleepSync(20);
    found = leftovers();
  }
  if (found.length > 0) throw new Error(`${when} there is left: ${found.slice(0, 12).join(" | ")}`);
}
