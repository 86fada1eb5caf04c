/** Somebody who has containers come and go at random. @module */
import { call, type Ended, type Mishap, type Options } from "./run_command.ts";
import type { LockTrace } from "./lock_trace.ts";
import { attach, detach, leave, mayLive, type Model, type Subject } from "./model.ts";
import type { Network, Verb } from "./network.ts";
import type { Prng } from "../harness/prng.ts";

/** What was done. */
export interface Tally {
  /** By `add succeeded`, `del killed`, … */
  readonly counts: Map<string, number>;
  stops: number;
  longestMs: number;
}

/** What all workers share. */
export interface Shared {
  readonly model: Model;
  readonly tally: Tally;
  readonly trace: LockTrace;
  /** Usual milliseconds, by way and verb. */
  readonly usual: Map<string, number>;
  readonly gates: ReadonlyMap<Network, Gate>;
  tell(line: string): void;
}

const KILLED = 0.15;
const STOPPED = 0.02;
const TRACED = 0.02;

/** Carries out so many operations, one after another. */
export async function work(shared: Shared, own: readonly Subject[], prng: Prng, operations: number): Promise<void> {
  for (let i = 0; i < operations; i++) {
    const subject = prng.pick(own.map((each) => [1, each] as const));
    const verb = chooseVerb(subject, prng);
    const key = `${subject.network.way} ${verb}`;
    const usual = shared.usual.get(key) ?? 50;
    const mishap = chooseMishap(prng, usual);
    const trace = !mishap && prng.chance(TRACED) ? shared.trace : undefined;
    const ended = await carryOut(shared, subject, verb, { mishap, trace });
    if (ended.how === "succeeded" && !mishap) shared.usual.set(key, usual * 0.9 + ended.ms * 0.1);
    count(shared.tally, verb, ended, mishap);
    if (ended.said !== "") shared.tell(`${verb} of "${subject.id}", ${ended.how}: ${ended.said}`);
  }
}

function chooseVerb({ state, network }: Subject, prng: Prng): Verb {
  // Who is attached must not be attached again: an engine never asks for that, and our own runtime refuses it.
  const again = network.way === "run" ? 0.1 : 0;
  const weights = {
    detached: { add: 0.9, del: 0.07, check: 0, gc: 0.03 },
    attached: { add: again, del: 0.5, check: 0.4, gc: 0.03 },
    unknown: { add: 0.2, del: 0.7, check: 0, gc: 0.1 },
  }[state];
  return prng.pick(Object.entries(weights).map(([verb, weight]) => [weight, verb as Verb] as const));
}

function chooseMishap(prng: Prng, usual: number): Mishap | undefined {
  const afterMs = prng.next() * 1.2 * usual;
  return prng.pick<Mishap | undefined>([
    [KILLED, { kind: "kill", afterMs }],
    [STOPPED, { kind: "stop", afterMs }],
    [1 - KILLED - STOPPED, undefined],
  ]);
}

function count(tally: Tally, verb: Verb, { how, ms }: Ended, mishap: Mishap | undefined): void {
  tally.counts.set(`${verb} ${how}`, (tally.counts.get(`${verb} ${how}`) ?? 0) + 1);
  if (mishap?.kind === "stop") tally.stops++;
  tally.longestMs = Math.max(tally.longestMs, ms);
}

function carryOut(shared: Shared, subject: Subject, verb: Verb, options: Options): Promise<Ended> {
  const { model, gates } = shared;
  if (verb === "gc") return collect(shared, subject.network, options);
  const one = () => operate(model, subject, verb, options);
  return verb === "add" ? gates.get(subject.network)!.beside(one) : one();
}

/** Does something to one container, and sees that it ends as it must. */
export async function operate(model: Model, subject: Subject, verb: Verb, options: Options): Promise<Ended> {
  const before = subject.state;
  subject.busy = verb;
  subject.generation++;
  if (verb === "del") leave(model, subject);
  const { result } = subject;
  const ended = await call(subject.network, verb, subject, { ...options, result });
  subject.busy = undefined;
  model.looked++;
  const expected = verb !== "add"
    ? "succeeded"
    : before === "attached"
    ? "failed"
    : before === "detached"
    ? "succeeded"
    : "";
  const isOver = ended.how === "succeeded" || ended.how === "failed";
  if (isOver && expected !== "" && ended.how !== expected) {
    model.violations.push(`${verb} of "${subject.id}", which was ${before}, ${ended.how}: ${ended.said}`);
  }
  // An ADD that is refused, and a CHECK, change nothing, wherever they are killed.
  if (verb === "add" && before !== "attached") {
    if (ended.result) attach(model, subject, ended.result);
    else subject.state = "unknown";
  } else if (verb === "del" && ended.how === "succeeded") detach(subject);
  return ended;
}

/** Has a network cleaned of whom nobody knows. */
function collect({ model, gates }: Shared, network: Network, options: Options): Promise<Ended> {
  return gates.get(network)!.alone(async () => {
    const all = model.subjects.filter((each) => each.network === network);
    const valid = all.filter(mayLive);
    const dead = all.filter((each) => !mayLive(each) && each.busy === undefined).map((each) => ({
      each,
      generation: each.generation,
    }));
    const ended = await call(network, "gc", undefined, { ...options, valid });
    model.looked++;
    if (ended.how === "failed") model.violations.push(`gc of ${network.name} failed: ${ended.said}`);
    for (const { each, generation } of dead) {
      // What a plugin that was killed has made is nowhere written down, but where our own runtime called it.
      if (ended.how === "succeeded" && each.generation === generation && network.way === "run") detach(each);
    }
    return ended;
  });
}

/** Who may work at a time. */
export interface Gate {
  beside<T>(work: () => Promise<T>): Promise<T>;
  alone<T>(work: () => Promise<T>): Promise<T>;
}

/** Our own runtime sees to it that nothing is attached while garbage is collected. */
export const open: Gate = { beside: (work) => work(), alone: (work) => work() };

/** An engine that calls plugins has to see to it itself, or its list of the living would be wrong by the time that it is read. */
export function newGate(): Gate {
  let last: Promise<unknown> | undefined;
  const beside = new Set<Promise<unknown>>();
  return {
    async beside(work) {
      while (last) await last;
      const working = work();
      beside.add(working);
      try {
        return await working;
      } finally {
        beside.delete(working);
      }
    },
    async alone(work) {
      const before = last;
      const turn = Promise.resolve(before).then(() => Promise.allSettled(beside)).then(work);
      const end = last = turn.catch(() => {});
      try {
        return await turn;
      } finally {
        if (last === end) last = undefined;
      }
    },
  };
}
