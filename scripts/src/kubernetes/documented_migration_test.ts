import { expect, test } from "bun:test";
import { readMigration } from "./documented_migration.ts";

test.each([
  ["From flannel", "cbr0"],
  ["From deploy/ranges, and back", "pods"],
])("%s: the documentation drains each node, and changes it before it takes pods again", (title, network) => {
  const { once, eachNode } = readMigration(title);
  expect(once.map(({ isOnNode }) => isOnNode)).toEqual(once.map(() => false));
  expect(eachNode.at(0)).toEqual({ command: "kubectl drain NODE --ignore-daemonsets", isOnNode: false });
  expect(eachNode.at(-1)).toEqual({ command: "kubectl uncordon NODE", isOnNode: false });
  const onNode = eachNode.filter(({ isOnNode }) => isOnNode).map(({ command }) => command);
  expect(onNode).toContain(`/opt/cni/bin/cni network rm ${network} --force`);
  expect(onNode.join()).not.toMatch(/kubectl|NODE|#/);
});
