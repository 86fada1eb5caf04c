/** Numbers of the ports of a rule, in as few matches as can be. @module */
import type { RulePort } from "./api/network_policy.ts";

/** Both ends are in it. */
export type PortRange = readonly [first: number, last: number];
export type NumberedPort = Exclude<RulePort, { readonly name: string }>;

export type NumberedMatch = NumberedPort | {
  readonly protocol: number;
  /** They are to be one set. */
  readonly ranges: readonly PortRange[];
};

/** Each is one kernel rule for each peer. Few are faster than a search in a set, many are slower, and take memory. */
const MOST_RANGES = 4;

/** @returns at most {@linkcode MOST_RANGES} */
export function numberedMatches(ports: readonly NumberedPort[]): NumberedMatch[] {
  const byProtocol = [...Map.groupBy(ports, ({ protocol }) => protocol)]
    .map(([protocol, own]) => ({ protocol, ranges: mergedRanges(own) }));
  const count = byProtocol.reduce((sum, { ranges }) => sum + (ranges?.length ?? 1), 0);
  return byProtocol.flatMap(({ protocol, ranges }): NumberedMatch[] => {
    if (!ranges) return [{ protocol }];
    if (count > MOST_RANGES && ranges.length > 1) return [{ protocol, ranges }];
    return ranges.map(([first, last]) => ({ protocol, first, last }));
  });
}

/** Sorted, and none touches another one. @returns `undefined` for all ports */
function mergedRanges(ports: readonly NumberedPort[]): PortRange[] | undefined {
  const ranges: PortRange[] = [];
  for (const { first, last } of ports) {
    if (first === undefined) return undefined;
    ranges.push([first, last!]);
  }
  const merged: PortRange[] = [];
  for (const [first, last] of ranges.sort(([a], [b]) => a - b)) {
    const before = merged.at(-1);
    if (!before || first > before[1] + 1) merged.push([first, last]);
    else if (last > before[1]) merged[merged.length - 1] = [before[0], last];
  }
  return merged;
}

export const isInRanges = (ranges: readonly PortRange[], port: number): boolean =>
  ranges.some(([first, last]) => first <= port && port <= last);

/** The same for the same ports: `80,8000-8080`. */
export const rangesText = (ranges: readonly PortRange[]): string =>
  ranges.map(([first, last]) => first === last ? `${first}` : `${first}-${last}`).join();
