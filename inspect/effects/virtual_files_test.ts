import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createFile, removeWithTemporary, replaceFile } from "../../ffi/sys/atomic_file.ts";
import { ignoreSystemErrors } from "../../ffi/sys/error.ts";
import { overwrite, readText } from "../../ffi/sys/file.ts";
import { sys } from "../../ffi/sys/libc.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import { newEffectList } from "./effect.ts";
import { virtualizeFiles } from "./virtual_files.ts";

const root = mkdtempSync(join(tmpdir(), "cni-virtual-"));
afterAll(() => rmSync(root, { recursive: true }));

/** Descriptors of files in memory. */
function countMemoryFiles(): number {
  const targets = readdirSync("/proc/self/fd").map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return "";
    }
  });
  return targets.filter((target) => target.startsWith("/memfd:dry-run")).length;
}

function inDryRun(call: () => void): string[] {
  const list = newEffectList(() => undefined, () => false);
  {
    using _ = virtualizeFiles(list, false, () => "host");
    call();
  }
  return list.effects.map(({ sentence }) => sentence);
}

test("files in memory are closed as soon as nothing leads to them", () => {
  const path = join(root, "state");
  writeFileSync(path, "old");
  const sentences = inDryRun(() => {
    for (let i = 0; i < 20; i++) {
      replaceFile(path, `${i}`);
      expect(readText(path)).toBe(`${i}`);
      createFile(`${path}-${i}`, "new");
      removeWithTemporary(`${path}-${i}`, () => {});
    }
    expect(countMemoryFiles()).toBe(1);
  });
  expect(sentences).toEqual([`replace file "${path}"`]);
  expect(countMemoryFiles()).toBe(0);
  expect(readFileSync(path, "utf8")).toBe("old");
});

test("a changed mode is read back, and is an effect", () => {
  const path = join(root, "mode");
  writeFileSync(path, "text", { mode: 0o600 });
  const sentences = inDryRun(() => {
    createFile(`${path}-new`, "text", 0o640);
    sys.chmod(path, 0o755);
    expect([path, `${path}-new`].map((each) => findStat(each)?.mode)).toEqual([0o755, 0o640]);
    expect(readText(path)).toBe("text");
  });
  expect(sentences).toEqual([`create file "${path}-new"`, `change the mode of "${path}" to 0755`]);
  expect(statSync(path).mode & 0o777).toBe(0o600);
});

test("files of the kernel are not written, except those of the process itself", async () => {
  await using child = Bun.spawn(["sleep", "60"]);
  const path = `/proc/${child.pid}/oom_score_adj`;
  const before = readFileSync(path, "utf8");
  const sentences = inDryRun(() => {
    overwrite(path, "500");
    expect(readText(path)).toBe("500");
    overwrite("/dev/null", "text");
    expect(ignoreSystemErrors(() => readText("/proc/self/comm"))).toBeString();
  });
  expect(sentences).toEqual([`write file "${path}"`]);
  expect(readFileSync(path, "utf8")).toBe(before);
});
