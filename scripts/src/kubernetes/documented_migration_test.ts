import { expect, test } from "bun:test";
import { readMigration } from "./documented_migration.ts";

test("the documentation's way from flannel drains each node, and changes it before it takes pods again", () => {
  const { once, eachNode } = readMigration();
  expect(once.map(({ isOnNode }) => isOnNode)).toEqual(once.map(() => false));
  expect(eachNode.at(0)).toEqual({ command: "kubectl drain NODE --ignore-daemonsets", isOnNode: false });
  expect(eachNode.at(-1)).toEqual({ command: "kubectl uncordon NODE", isOnNode: false });
  const onNode = eachNode.filter(({ isOnNode }) => isOnNode).map(({ command }) => command);
  expect(onNode).toContain("/opt/cni/bin/cni network rm cbr0 --force");
  expect(onNode.join()).not.toMatch(/kubectl|NODE|#/);
});
