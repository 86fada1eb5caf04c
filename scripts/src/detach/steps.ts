/** Random sequences of commands and events. @module */
import fc from "fast-check";
import { NODE_EVENTS, type NodeEvent } from "./events.ts";
import { type NetworkKind, VARIANTS } from "./networks.ts";

/** An event in the middle of a command. */
export interface MidCommandEvent {
  /** Before which system call, or behind which plugin. */
  readonly at: number;
  readonly event: NodeEvent;
}

/** CNI_NETNS of DEL: the path of the namespace, none, a path where nothing is, or one of a plain file. */
export type NetnsKind = "path" | "empty" | "absent" | "file";

/** One step; containers are numbers. */
export type SequenceStep =
  | { readonly do: "add"; readonly container: number; readonly meanwhile?: MidCommandEvent | undefined }
  | {
    readonly do: "del";
    readonly container: number;
    readonly netns: NetnsKind;
    readonly withoutResult: boolean;
    readonly meanwhile?: MidCommandEvent | undefined;
  }
  | { readonly do: "check"; readonly container: number }
  /** `valid` are the containers that stay. */
  | { readonly do: "gc"; readonly valid: readonly number[] }
  | { readonly do: "event"; readonly container: number; readonly event: NodeEvent; readonly number: number }
  | { readonly do: "change"; readonly variant: number }
  | { readonly do: "rename" };

/** What happens on one node. */
export interface Sequence {
  readonly kind: NetworkKind;
  readonly steps: readonly SequenceStep[];
  /** Of the DELs in the end. */
  readonly netns: NetnsKind;
}

/** Containers on the node. */
export const CONTAINER_COUNT = 3;

const containerNumber = fc.nat(CONTAINER_COUNT - 1);
const nodeEvent = fc.constantFrom(...NODE_EVENTS);
const netns = fc.constantFrom<NetnsKind>("path", "path", "empty", "absent", "file");
const meanwhile = fc.option(fc.record({ at: fc.nat(250), event: nodeEvent }), { nil: undefined, freq: 2 });

const step: fc.Arbitrary<SequenceStep> = fc.oneof(
  { weight: 8, arbitrary: fc.record({ do: fc.constant("add" as const), container: containerNumber, meanwhile }) },
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant("del" as const),
      container: containerNumber,
      netns,
      withoutResult: fc.boolean(),
      meanwhile,
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("check" as const), container: containerNumber }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("gc" as const), valid: fc.uniqueArray(containerNumber) }) },
  {
    weight: 8,
    arbitrary: fc.record({
      do: fc.constant("event" as const),
      container: containerNumber,
      event: nodeEvent,
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
    fc.record({ do: fc.constant("add" as const), container: containerNumber }),
    fc.array(step, { minLength: 1, maxLength: 9 }),
  ).map(([first, rest]): readonly SequenceStep[] => [first, ...rest]),
  netns,
});

const formatStep = (sequenceStep: SequenceStep): string => {
  const words: (string | number)[] = [sequenceStep.do];
  if ("container" in sequenceStep) words.push(`c${sequenceStep.container}`);
  if (sequenceStep.do === "del") {
    words.push(sequenceStep.netns, ...(sequenceStep.withoutResult ? ["without result"] : []));
  }
  if (sequenceStep.do === "gc") {
    words.push(`valid ${sequenceStep.valid.map((number) => `c${number}`).join(" ") || "none"}`);
  }
  if (sequenceStep.do === "event") words.push(sequenceStep.event, sequenceStep.number);
  if (sequenceStep.do === "change") words.push(sequenceStep.variant);
  if ("meanwhile" in sequenceStep && sequenceStep.meanwhile) {
    words.push(`(at ${sequenceStep.meanwhile.at}: ${sequenceStep.meanwhile.event})`);
  }
  return words.join(" ");
};

/** A sequence for people. */
export const formatSequence = ({ kind, steps, netns }: Sequence): string =>
  [`on ${kind}`, ...steps.map(formatStep), `in the end DEL with namespace: ${netns}`].join("\n    ");
