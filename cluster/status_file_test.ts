import { expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findStatusFile, StatusFile } from "./status_file.ts";

test("a part goes on where its status cannot be written, says so once, and writes it as soon as it can", () => {
  using scope = new DisposableStack();
  const parent = mkdtempSync(join(tmpdir(), "cni-status-"));
  scope.defer(() => rmSync(parent, { recursive: true }));
  const directory = join(parent, "state");
  const messages: string[] = [];
  const file = new StatusFile(directory, (message) => messages.push(message));
  file.write({ nodes: 1 }, undefined);
  file.write({ nodes: 1 }, undefined);
  expect(messages).toHaveLength(1);
  expect(messages[0]).toContain(directory);
  mkdirSync(directory);
  file.write({ nodes: 1 }, 5);
  expect(findStatusFile<object>(directory)).toEqual({ nodes: 1, heardAtMs: 5 });
  // Nothing has changed, and the time is not due.
  file.write({ nodes: 1 }, 6);
  expect(findStatusFile<object>(directory)).toEqual({ nodes: 1, heardAtMs: 5 });
  file.write({ nodes: 2 }, 6);
  expect(findStatusFile<object>(directory)).toEqual({ nodes: 2, heardAtMs: 6 });
});
