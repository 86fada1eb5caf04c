/** Lint says something of every text that no command can use, and stumbles over none. */
import { beforeAll, expect, test } from "bun:test";
import fc from "fast-check";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { loadPluginDocs } from "../../plugins/docs_registry.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { useDirectory } from "../../testing/directory.ts";
import { checkProperty, outcomeOf } from "../../testing/fuzz.ts";
import { documentTextOf } from "../../testing/fuzz_documents.ts";
import { loadNetwork } from "../../runtime/load.ts";
import { lintFiles } from "./lint.ts";

const root = useDirectory("cni-lint-fuzz-");
beforeAll(() => Promise.all([loadPlugins(), loadPluginDocs()]));

test("a file that cannot be loaded has an error, and a position in its text", () => {
  const path = join(root, "10-web.conflist");
  const isNetwork = (document: object) => "name" in document && ("plugins" in document || "type" in document);
  checkProperty(
    fc.property(documentTextOf(isNetwork), (text) => {
      writeFileSync(path, text);
      // Without a byte order mark and lone surrogates.
      const lines = new TextDecoder().decode(readFileSync(path)).split("\n");
      const outcome = outcomeOf(() => loadNetwork(path));
      const report = outcomeOf(() => lintFiles([path], { pluginDirectories: [] }));
      if (!("value" in report)) throw report.error;
      const { problems } = report.value;
      if ("error" in outcome) expect(problems.map(({ severity }) => severity)).toContain("error");
      for (const { line, column, length, text: shown } of problems) {
        expect(lines[line - 1]!.replace(/\r$/, "")).toBe(shown);
        expect(column - 1 + length).toBeLessThanOrEqual(Math.max(1, shown.length + 1));
      }
    }),
    400,
  );
});

test("what is no file in a directory is an error, and hides no other file", () => {
  const directory = join(root, "strange");
  mkdirSync(join(directory, "00-directory.conflist"), { recursive: true });
  symlinkSync("nowhere", join(directory, "10-nowhere.conflist"));
  symlinkSync("20-loop.conflist", join(directory, "20-loop.conflist"));
  Bun.spawnSync(["mkfifo", join(directory, "30-pipe.conflist")]);
  writeFileSync(join(directory, "40-web.conflist"), '{ "cniVersion": "1.1.0", "name": "web", "plugins": [] }');
  const { problems } = lintFiles([directory], { pluginDirectories: [] });
  expect(problems.map(({ file, severity }) => `${file.slice(directory.length + 1)} ${severity}`)).toEqual([
    "10-nowhere.conflist error",
    "20-loop.conflist error",
    "30-pipe.conflist error",
    "40-web.conflist error",
  ]);
});
