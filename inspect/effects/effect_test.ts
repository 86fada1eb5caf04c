import { expect, test } from "bun:test";
import { newEffectList } from "./effect.ts";

const fileEffect = (path: string) =>
  ({ kind: "file", action: "remove", sentence: `remove file "${path}"`, target: path }) as const;

test("an effect is listed once, a rule each time, and a file without what a later effect cancels", () => {
  const list = newEffectList(() => "bridge DEL", () => false);
  const rule = { kind: "nft", action: "add", sentence: "add rule", target: "inet cni forward" } as const;
  for (const effect of [fileEffect("/a"), rule, fileEffect("/b"), rule, fileEffect("/a")]) list.add(effect);
  expect(list.effects.map(({ target, plugin }) => `${target}, ${plugin}`)).toEqual(
    ["/a", "inet cni forward", "/b", "inet cni forward"].map((target) => `${target}, bridge DEL`),
  );
  list.withdrawFile("/a");
  list.add(fileEffect("/a"));
  expect(list.effects.map(({ target }) => target)).toEqual(["inet cni forward", "/b", "inet cni forward", "/a"]);
});

// A list that looks through itself for each effect needs minutes.
test("a list takes 200,000 effects", () => {
  const list = newEffectList(() => undefined, () => false);
  for (let i = 0; i < 200_000; i++) list.add(fileEffect(`/${i}`));
  for (let i = 0; i < 199_999; i++) list.withdrawFile(`/${i}`);
  expect(list.effects.map(({ target }) => target)).toEqual(["/199999"]);
}, 20_000);
