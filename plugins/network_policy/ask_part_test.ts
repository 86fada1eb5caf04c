/** How long a plugin waits until the flows of a pod that ends are deleted. */
import { expect, test } from "bun:test";
import { mkdtempSync } from "node:fs";
import { useDirectory } from "../../testing/directory.ts";
import { answerPlugins } from "../../testing/policy_answers.ts";
import { askToDeleteFlows } from "./ask_part.ts";

const parent = useDirectory("cni-ask-part-");
const DELETED = '{"isSynced":false,"areFlowsDeleted":true}\n';

test("a server that walks a long table is waited for", async () => {
  using resources = new DisposableStack();
  const directory = mkdtempSync(`${parent}/`);
  await answerPlugins({ directory }, resources, DELETED, 2500);
  expect(askToDeleteFlows(`${directory}/socket`, ["10.1.0.2"])).toBe(true);
}, 30_000);

test("one that hangs, or is gone, is not", async () => {
  using resources = new DisposableStack();
  const directory = mkdtempSync(`${parent}/`);
  await answerPlugins({ directory }, resources, "");
  const started = performance.now();
  expect(askToDeleteFlows(`${directory}/socket`, ["10.1.0.2"])).toBe(false);
  expect(askToDeleteFlows(`${directory}/of-nobody`, ["10.1.0.2"])).toBe(false);
  expect(performance.now() - started).toBeLessThan(5000);
}, 30_000);
