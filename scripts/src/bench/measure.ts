/** Measures sides in turn, so that a machine whose speed drifts slows all of them. @module */
import { readdirSync, readFileSync } from "node:fs";

/** The values of each side, in the order of the rounds. A side `run` that gives `{ add, del }` is found as `run.add` and `run.del`. */
export type Samples = Readonly<Record<string, readonly number[]>>;

/** How long a row may take before it ends early, so that the whole remains a matter of minutes. */
const ROW_TIME_LIMIT_MS = 25_000;

/** `round` counts from 0; the first `warmUp` do not count, and `minimumRounds` are made however long they take. */
export function interleave(
  rounds: number,
  sides: Readonly<Record<string, (round: number) => number | Readonly<Record<string, number>>>>,
  { warmUp = 3, minimumRounds = 3 }: { readonly warmUp?: number; readonly minimumRounds?: number } = {},
): Samples {
  const samples: Record<string, number[]> = {};
  const began = performance.now();
  for (let round = 0; round < rounds + warmUp; round++) {
    if (round >= warmUp + minimumRounds && performance.now() - began > ROW_TIME_LIMIT_MS) break;
    for (const [name, side] of Object.entries(sides)) {
      const measured = side(round);
      if (round < warmUp) continue;
      const values = typeof measured === "number"
        ? [[name, measured] as const]
        : Object.entries(measured).map(([key, value]) => [`${name}.${key}`, value] as const);
      for (const [key, value] of values) (samples[key] ??= []).push(value);
    }
  }
  return samples;
}

/** Waits until the kernel has taken down the namespaces of the row before, which can take seconds. */
export function awaitNamespaceCleanup(): void {
  for (let quiet = 0, waited = 0; quiet < 4 && waited < 600; waited++) {
    Bun.sleepSync(50);
    quiet = isCleaningUpNamespaces() ? 0 : quiet + 1;
  }
}

/** Whether a thread of the kernel does so: `kworker/u8:4+netns`. */
function isCleaningUpNamespaces(): boolean {
  return readdirSync("/proc").filter((name) => /^\d+$/.test(name)).some((pid) => {
    try {
      return readFileSync(`/proc/${pid}/comm`, "latin1").endsWith("+netns\n");
    } catch {
      return false;
    }
  });
}
