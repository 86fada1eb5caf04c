import { expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findStatusFile, isCurrent, StatusFile, type StatusOrigin } from "./status_file.ts";

test("a part goes on where its status cannot be written, says so once, and writes it as soon as it can", () => {
  using scope = new DisposableStack();
  const parent = mkdtempSync(join(tmpdir(), "cni-status-"));
  scope.defer(() => rmSync(parent, { recursive: true }));
  const directory = join(parent, "state");
  writeFileSync(directory, "");
  const said = () => {
    const { process: _process, writtenAtMs: _writtenAtMs, ...status } = findStatusFile<StatusOrigin>(directory)!;
    return status as object;
  };
  const messages: string[] = [];
  const file = new StatusFile(directory, (message) => messages.push(message));
  file.write({ nodes: 1 }, undefined);
  file.write({ nodes: 1 }, undefined);
  expect(messages).toHaveLength(1);
  expect(messages[0]).toContain(directory);
  rmSync(directory);
  file.write({ nodes: 1 }, 5);
  expect(said()).toEqual({ nodes: 1, heardAtMs: 5 });
  // Nothing has changed, and the time is not due.
  file.write({ nodes: 1 }, 6);
  expect(said()).toEqual({ nodes: 1, heardAtMs: 5 });
  file.write({ nodes: 2 }, 6);
  expect(said()).toEqual({ nodes: 2, heardAtMs: 6 });
});

test("a status says which process wrote it, and when: that of an earlier one is no more current", () => {
  using scope = new DisposableStack();
  const directory = mkdtempSync(join(tmpdir(), "cni-status-"));
  scope.defer(() => rmSync(directory, { recursive: true }));
  const file = new StatusFile(directory, () => {});
  const before = Date.now();
  file.write({ nodes: 1 }, undefined);
  const found = findStatusFile<StatusOrigin>(directory)!;
  expect(found.writtenAtMs).toBeGreaterThanOrEqual(before);
  expect(isCurrent(found)).toBe(true);
  const { pid, startTicks } = found.process!;
  expect(isCurrent({ process: { pid, startTicks: startTicks - 1 } })).toBe(false);
  expect(isCurrent({})).toBe(false);
});
