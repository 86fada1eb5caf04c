/** What is done one after the other, made up at random. @module */
import fc from "fast-check";
import { NODE_EVENTS, type NodeEvent } from "./events.ts";
import { type NetworkKind, VARIANTS } from "./networks.ts";

/** Something that happens in the middle of a command. */
export interface MidCommandEvent {
  /** Before which system call, or behind which plugin. */
  readonly at: number;
  readonly what: NodeEvent;
}

/** How the namespace is named to DEL: as it is, not at all, or by a path where nothing is, or where there is no namespace. */
export type NetnsNaming = "path" | "empty" | "absent" | "file";

/** One step; `who` is the number of a container. */
export type SequenceStep =
  | { readonly do: "add"; readonly who: number; readonly meanwhile?: MidCommandEvent | undefined }
  | {
    readonly do: "del";
    readonly who: number;
    readonly naming: NetnsNaming;
    readonly withoutResult: boolean;
    readonly meanwhile?: MidCommandEvent | undefined;
  }
  | { readonly do: "check"; readonly who: number }
  /** Each number of `valid` is one that lives. */
  | { readonly do: "gc"; readonly valid: readonly number[] }
  | { readonly do: "happen"; readonly who: number; readonly what: NodeEvent; readonly number: number }
  | { readonly do: "change"; readonly variant: number }
  | { readonly do: "rename" };

/** What is done on one node. */
export interface Sequence {
  readonly kind: NetworkKind;
  readonly steps: readonly SequenceStep[];
  /** How the DELs in the end name the namespace. */
  readonly naming: NetnsNaming;
}

/** Containers on the node. */
export const CONTAINER_COUNT = 3;

const containerNumber = fc.nat(CONTAINER_COUNT - 1);
const nodeEvent = fc.constantFrom(...NODE_EVENTS);
const naming = fc.constantFrom<NetnsNaming>("path", "path", "empty", "absent", "file");
const meanwhile = fc.option(fc.record({ at: fc.nat(250), what: nodeEvent }), { nil: undefined, freq: 2 });

const step: fc.Arbitrary<SequenceStep> = fc.oneof(
  { weight: 8, arbitrary: fc.record({ do: fc.constant("add" as const), who: containerNumber, meanwhile }) },
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant("del" as const),
      who: containerNumber,
      naming,
      withoutResult: fc.boolean(),
      meanwhile,
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("check" as const), who: containerNumber }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("gc" as const), valid: fc.uniqueArray(containerNumber) }) },
  {
    weight: 8,
    arbitrary: fc.record({
      do: fc.constant("happen" as const),
      who: containerNumber,
      what: nodeEvent,
      number: fc.nat(99),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("change" as const), variant: fc.nat(VARIANTS - 1) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("rename" as const) }) },
);

const kind = fc.oneof(
  { weight: 6, arbitrary: fc.constant<NetworkKind>("bridge") },
  { weight: 3, arbitrary: fc.constant<NetworkKind>("ptp") },
  ...(["macvlan", "host-device", "tap"] as const).map((name) => ({
    weight: 1,
    arbitrary: fc.constant<NetworkKind>(name),
  })),
);

/** Begins with an ADD, as without one nothing can be left. */
export const sequence: fc.Arbitrary<Sequence> = fc.record({
  kind,
  steps: fc.tuple(
    fc.record({ do: fc.constant("add" as const), who: containerNumber }),
    fc.array(step, { minLength: 1, maxLength: 9 }),
  ).map(([first, rest]): readonly SequenceStep[] => [first, ...rest]),
  naming,
});

const formatStep = (sequenceStep: SequenceStep): string => {
  const words: (string | number)[] = [sequenceStep.do];
  if ("who" in sequenceStep) words.push(`c${sequenceStep.who}`);
  if (sequenceStep.do === "del") words.push(sequenceStep.naming, ...(sequenceStep.withoutResult ? ["forgetful"] : []));
  if (sequenceStep.do === "gc") {
    words.push(`valid ${sequenceStep.valid.map((number) => `c${number}`).join(" ") || "none"}`);
  }
  if (sequenceStep.do === "happen") words.push(sequenceStep.what, sequenceStep.number);
  if (sequenceStep.do === "change") words.push(sequenceStep.variant);
  if ("meanwhile" in sequenceStep && sequenceStep.meanwhile) {
    words.push(`(at ${sequenceStep.meanwhile.at}: ${sequenceStep.meanwhile.what})`);
  }
  return words.join(" ");
};

/** A sequence for people. */
export const formatSequence = ({ kind, steps, naming }: Sequence): string =>
  [`on ${kind}`, ...steps.map(formatStep), `in the end DEL with namespace: ${naming}`].join("\n    ");
