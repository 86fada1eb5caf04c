/** What is done one after the other, made up at random. @module */
import fc from "fast-check";
import { type Happening, HAPPENINGS } from "./events.ts";
import { type Kind, VARIANTS } from "./networks.ts";

/** Something that happens in the middle of a command. */
export interface Meanwhile {
  /** Before which system call, or behind which plugin. */
  readonly at: number;
  readonly what: Happening;
}

/** How the namespace is named to DEL: as it is, not at all, or by a path where nothing is, or where there is no namespace. */
export type Naming = "path" | "empty" | "absent" | "file";

/** One step; `who` is the number of a container. */
export type Step =
  | { readonly do: "add"; readonly who: number; readonly meanwhile?: Meanwhile | undefined }
  | {
    readonly do: "del";
    readonly who: number;
    readonly naming: Naming;
    readonly forgetful: boolean;
    readonly meanwhile?: Meanwhile | undefined;
  }
  | { readonly do: "check"; readonly who: number }
  /** Each number of `valid` is one that lives. */
  | { readonly do: "gc"; readonly valid: readonly number[] }
  | { readonly do: "happen"; readonly who: number; readonly what: Happening; readonly number: number }
  | { readonly do: "change"; readonly variant: number }
  | { readonly do: "rename" };

/** What is done on one node. */
export interface Sequence {
  readonly kind: Kind;
  readonly steps: readonly Step[];
  /** How the DELs in the end name the namespace. */
  readonly naming: Naming;
}

/** Containers on the node. */
export const CONTAINERS = 3;

const who = fc.nat(CONTAINERS - 1);
const what = fc.constantFrom(...HAPPENINGS);
const naming = fc.constantFrom<Naming>("path", "path", "empty", "absent", "file");
const meanwhile = fc.option(fc.record({ at: fc.nat(250), what }), { nil: undefined, freq: 2 });

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 8, arbitrary: fc.record({ do: fc.constant("add" as const), who, meanwhile }) },
  {
    weight: 5,
    arbitrary: fc.record({ do: fc.constant("del" as const), who, naming, forgetful: fc.boolean(), meanwhile }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("check" as const), who }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("gc" as const), valid: fc.uniqueArray(who) }) },
  { weight: 8, arbitrary: fc.record({ do: fc.constant("happen" as const), who, what, number: fc.nat(99) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("change" as const), variant: fc.nat(VARIANTS - 1) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("rename" as const) }) },
);

const kind = fc.oneof(
  { weight: 6, arbitrary: fc.constant<Kind>("bridge") },
  { weight: 3, arbitrary: fc.constant<Kind>("ptp") },
  ...(["macvlan", "host-device", "tap"] as const).map((each) => ({ weight: 1, arbitrary: fc.constant<Kind>(each) })),
);

/** Begins with an ADD, as without one nothing can be left. */
export const sequence: fc.Arbitrary<Sequence> = fc.record({
  kind,
  steps: fc.tuple(
    fc.record({ do: fc.constant("add" as const), who }),
    fc.array(step, { minLength: 1, maxLength: 9 }),
  ).map(([first, rest]): readonly Step[] => [first, ...rest]),
  naming,
});

const inWords = (each: Step): string => {
  const words: (string | number)[] = [each.do];
  if ("who" in each) words.push(`c${each.who}`);
  if (each.do === "del") words.push(each.naming, ...(each.forgetful ? ["forgetful"] : []));
  if (each.do === "gc") words.push(`valid ${each.valid.map((one) => `c${one}`).join(" ") || "none"}`);
  if (each.do === "happen") words.push(each.what, each.number);
  if (each.do === "change") words.push(each.variant);
  if ("meanwhile" in each && each.meanwhile) words.push(`(at ${each.meanwhile.at}: ${each.meanwhile.what})`);
  return words.join(" ");
};

/** A sequence for people. */
export const formatSequence = ({ kind, steps, naming }: Sequence): string =>
  [`on ${kind}`, ...steps.map(inWords), `in the end DEL with namespace: ${naming}`].join("\n    ");
