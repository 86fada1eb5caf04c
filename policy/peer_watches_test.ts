/** Which pods of other nodes are watched. */
import { expect, test } from "bun:test";
import { PeerWatches } from "./peer_watches.ts";

const names = (count: number): Set<string> => new Set(Array.from({ length: count }, (_, index) => `n${index}`));

/** Tells of watches by the namespace; `*` is that of all. */
function newScene() {
  const running = new Map<string, () => void>();
  const forgotten: string[][] = [];
  const watches = new PeerWatches({
    follow(namespace = "*", onListed, signal) {
      running.set(namespace, onListed);
      signal.addEventListener("abort", () => running.delete(namespace));
    },
    forgetOthers: (namespaces) => void forgotten.push([...namespaces]),
  });
  const listAll = () => running.forEach((onListed) => onListed());
  return { watches, forgotten, listAll, running: () => [...running.keys()].sort() };
}

test("each namespace has a watch, and pods of one that nobody selects are forgotten", () => {
  const { watches, forgotten, listAll, running } = newScene();
  expect(watches.hasListed(names(0))).toBe(true);
  watches.select(names(2));
  expect(running()).toEqual(["n0", "n1"]);
  expect(watches.hasListed(names(2))).toBe(false);
  listAll();
  expect(watches.hasListed(names(2))).toBe(true);
  watches.select(names(1));
  expect(running()).toEqual(["n0"]);
  expect(forgotten).toEqual([["n0"]]);
});

test("above 20 namespaces, one watch takes their place when it has listed", () => {
  const { watches, forgotten, listAll, running } = newScene();
  watches.select(names(20));
  listAll();
  expect(running().length).toBe(20);
  watches.select(names(21));
  expect(running().length).toBe(21);
  expect(watches.hasListed(names(21))).toBe(false);
  listAll();
  watches.select(names(21));
  expect(running()).toEqual(["*"]);
  // It stays until there are few, so that it does not come and go.
  watches.select(names(11));
  expect([running(), forgotten]).toEqual([["*"], []]);
  watches.select(names(10));
  expect(running()).toEqual(["*", ...names(10)].sort());
  listAll();
  watches.select(names(10));
  expect(running()).toEqual([...names(10)].sort());
  expect(forgotten).toEqual([[...names(10)]]);
});
