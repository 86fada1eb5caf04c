import { expect, test } from "bun:test";
import fc from "fast-check";
import { processorMs } from "../../testing/fuzz.ts";
import { formatHolder, validHolderFilter } from "./inventory.ts";

const text = fc.string({ unit: fc.constantFrom("a", "b", "ü", "😀"), minLength: 1, maxLength: 3 });
const attachment = fc.record({ containerId: text, ifname: text });
const holder = fc.record({ containerId: text, ifname: text }, { requiredKeys: ["containerId"] });

test("a reservation is spared that is an attachment on the list, or could be the beginning of one if nothing tells its boot", () => {
  fc.assert(fc.property(fc.array(attachment), fc.array(holder), fc.nat(1), (valid, holders, boot) => {
    const lives = validHolderFilter(valid);
    for (const each of holders) {
      const own = formatHolder(each);
      const expected = valid.map(formatHolder).some((one) => one === own || boot === 0 && one.startsWith(own));
      expect(lives({ holder: each, bootTag: boot })).toBe(expected);
    }
  }));
});

test("tens of thousands are told apart in no time", () => {
  const named = (i: number, mark: string) => ({ containerId: `${i * 7919 % 50_000}${mark}`, ifname: "eth0" });
  const numbers = Array.from({ length: 50_000 }, (_, i) => i);
  const started = processorMs();
  const lives = validHolderFilter(numbers.map((i) => named(i, "x")));
  expect(numbers.filter((i) => lives({ holder: named(i, "y"), bootTag: 0 }))).toEqual([]);
  expect(processorMs() - started).toBeLessThan(2000);
});
