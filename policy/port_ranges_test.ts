import { expect, test } from "bun:test";
import { IPPROTO_TCP, IPPROTO_UDP } from "../ffi/sys/uapi.ts";
import { isInRanges, type NumberedMatch, numberedMatches, rangesText } from "./port_ranges.ts";

const textOf = (match: NumberedMatch): string => {
  const { protocol } = match;
  if ("ranges" in match) return `${protocol} in ${rangesText(match.ranges)}`;
  return match.first === undefined ? `${protocol}` : `${protocol} ${rangesText([[match.first, match.last!]])}`;
};

const matchesOf = (...ports: readonly (readonly [protocol: number, first?: number, last?: number])[]) =>
  numberedMatches(ports.map(([protocol, first, last = first]) => (
    first === undefined ? { protocol } : { protocol, first, last: last! }
  ))).map(textOf);

const [TCP, UDP] = [IPPROTO_TCP, IPPROTO_UDP];

test("ports that overlap or touch are one range, and all ports have the others", () => {
  expect(matchesOf()).toEqual([]);
  expect(matchesOf([TCP, 81], [TCP, 80], [TCP, 443], [TCP, 80])).toEqual(["6 80-81", "6 443"]);
  expect(matchesOf([TCP, 1, 100], [TCP, 50, 60], [TCP, 90, 200], [TCP, 202])).toEqual(["6 1-200", "6 202"]);
  expect(matchesOf([TCP, 80], [TCP], [UDP, 53], [TCP, 443])).toEqual(["6", "17 53"]);
});

test("more than four are one set for each protocol", () => {
  const four = [1, 3, 5, 7].map((port) => [TCP, port] as const);
  expect(matchesOf(...four)).toEqual(["6 1", "6 3", "6 5", "6 7"]);
  expect(matchesOf(...four, [TCP, 8], [TCP, 7, 9])).toEqual(["6 1", "6 3", "6 5", "6 7-9"]);
  expect(matchesOf(...four, [TCP, 65_000, 65_535])).toEqual(["6 in 1,3,5,7,65000-65535"]);
  expect(matchesOf(...four, [UDP, 53])).toEqual(["6 in 1,3,5,7", "17 53"]);
  expect(matchesOf(...four, [UDP])).toEqual(["6 in 1,3,5,7", "17"]);
  expect([0, 1, 2, 8, 9].map((port) => isInRanges([[1, 1], [3, 8]], port))).toEqual([false, true, false, true, false]);
});
