/**
 * A new plugin costs a folder and a line: one is made in a copy of the repository, where the suites over every plugin find it, pass, and
 * fail once it is broken. Only the checks of types and the boot of the virtual machine are left to scripts/test.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { MINIMAL_ROOT_PROGRAMS } from "../../../testing/minimal_root.ts";
import { testWith } from "../../../testing/binary.ts";
import { exportProblems } from "../check/exports.ts";
import { importProblems } from "../check/layers.ts";
import { conformanceTests } from "../conformance/main.ts";
import { listSources, REPOSITORY_ROOT } from "../repository.ts";
import { parseCases } from "../test/junit.ts";
import { instantiate, nameProblem, withRegistryLine } from "./main.ts";

const NAME = "link-group";
const FOLDER = "plugins/link_group";
const FILES = [
  "config.ts",
  "docs.ts",
  "elements.ts",
  "fixture.ts",
  "model.ts",
  "plugin.ts",
  "plugin_test.ts",
  "tools_test.ts",
].map((
  file,
) => `${FOLDER}/${file}`);

let root: string;
beforeAll(() => {
  root = mkdtempSync(join(tmpdir(), "cni-new-plugin-"));
  const left = ["node_modules", ".git", "dist"].map((name) => join(REPOSITORY_ROOT, name));
  cpSync(REPOSITORY_ROOT, root, { recursive: true, filter: (path) => !left.includes(path) });
  symlinkSync(join(REPOSITORY_ROOT, "node_modules"), join(root, "node_modules"));
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

interface FinishedRun {
  readonly exitCode: number | null;
  readonly output: string;
}

/** Runs Bun in the copy. */
function runBun(...words: readonly string[]): FinishedRun {
  const child = Bun.spawnSync([process.execPath, ...words], {
    cwd: root,
    env: { ...process.env, NO_COLOR: "1", CNI_BINARY: join(root, "dist/cni"), TEST_PLUGINS: NAME },
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  return { exitCode: child.exitCode, output: `${child.stdout}${child.stderr}` };
}

/** The names of tests by their outcome, and what was printed. */
interface SuiteOutcome {
  readonly passed: readonly string[];
  readonly failed: readonly string[];
  readonly output: string;
}

/** Runs tests of the copy. */
function runSuite({ files, pattern = "" }: Selection): SuiteOutcome {
  const report = join(root, "report.xml");
  rmSync(report, { force: true });
  const options = ["--timeout=60000", "--reporter=junit", `--reporter-outfile=${report}`];
  const { output } = runBun("test", ...files.map((file) => `./${file}`), ...options, ...pattern ? ["-t", pattern] : []);
  const cases = existsSync(report) ? parseCases(readFileSync(report, "utf8")) : [];
  const named = (wanted: string) => cases.filter(({ outcome }) => outcome === wanted).map(({ name }) => name);
  return { passed: named("passed"), failed: named("failed"), output };
}

/** Test files, and the tests of them that are run; all unless told. */
interface Selection {
  readonly files: readonly string[];
  readonly pattern?: string;
}

const BAD_INPUT_FILE = "e2e/conformance/bad_input_test.ts";

/** The suites over every plugin, and what a new one makes them run. */
const SUITES: Readonly<Record<string, Selection>> = {
  "its own tests": { files: [`${FOLDER}/plugin_test.ts`, `${FOLDER}/tools_test.ts`] },
  conformance: { files: conformanceTests().filter((file) => file !== BAD_INPUT_FILE) },
  "bad input": { files: [BAD_INPUT_FILE], pattern: `^${NAME}: ` },
  "the lane in the virtual machine": { files: ["e2e/every_plugin_vm_test.ts"], pattern: `^${NAME}: ` },
  "the cost budget": { files: ["e2e/budget_test.ts"], pattern: `recorded: ${NAME}$` },
  documentation: { files: ["scripts/src/docs/main_test.ts"] },
};

/** Tests that must fail when the plugin changes nothing and takes whatever it is told. */
const FAILING: Readonly<Record<string, Selection>> = {
  "its own tests": SUITES["its own tests"]!,
  conformance: { files: ["e2e/conformance/check_test.ts"] },
  "bad input": { files: [BAD_INPUT_FILE], pattern: `^${NAME}: what is wrong in keys of its own` },
  "the lane in the virtual machine": SUITES["the lane in the virtual machine"]!,
  documentation: SUITES.documentation!,
};

/** Half a minute where nothing else runs. */
const TIMEOUT_MS = 300_000;

testWith(
  [...MINIMAL_ROOT_PROGRAMS, "strace", "ip", "nft"],
  "the suites find a new plugin, pass, and fail once it is broken",
  () => {
    const made = runBun("scripts/src/new-plugin/main.ts", NAME);
    expect(made).toMatchObject({ exitCode: 0, output: expect.stringContaining(`Wrote ${FOLDER}/`) });
    expect(runBun("scripts/src/new-plugin/main.ts", NAME)).toEqual({
      exitCode: 1,
      output: `Cannot make a plugin "${NAME}": there is a plugin "${NAME}" already\n`,
    });

    const sources = new Map([...listSources(), ...FILES].map((path) => [path, readFileSync(join(root, path), "utf8")]));
    expect([...importProblems(sources), ...exportProblems(sources)]).toEqual([]);
    expect(runBun("scripts/src/build/main.ts")).toMatchObject({ exitCode: 0 });

    expect(runSuite(SUITES.documentation!).output).toContain("README.md is stale: run scripts/docs");
    expect(runBun("scripts/src/docs/main.ts")).toMatchObject({ exitCode: 0 });
    expect(readFileSync(join(root, `docs/plugins/${NAME}.md`), "utf8")).toContain("- **`interface`**: ");
    expect(runSuite(SUITES["the cost budget"]!).output).toContain(`${NAME} ADD has no budget`);
    expect(runBun("scripts/src/budget/main.ts", "--record", NAME)).toMatchObject({ exitCode: 0 });

    for (const [name, selection] of Object.entries(SUITES)) {
      const { passed, failed, output } = runSuite(selection);
      expect([name, failed, failed.length > 0 ? output : ""]).toEqual([name, [], ""]);
      expect([name, passed.length > 0]).toEqual([name, true]);
    }

    const file = join(root, FOLDER, "plugin.ts");
    const broken = readFileSync(file, "utf8")
      .replace("config: linkGroupConfig,", "config: anything as typeof linkGroupConfig,")
      .replace(/^ {4}ensureElements\(.*\n/m, "")
      .replace("import * as link", 'import { anything } from "../../spec/schema.ts";\nimport * as link');
    writeFileSync(file, broken);
    expect(runBun("scripts/src/build/main.ts")).toMatchObject({ exitCode: 0 });
    for (const [name, selection] of Object.entries(FAILING)) {
      const { failed, output } = runSuite(selection);
      expect([name, failed.length > 0 ? "" : output]).toEqual([name, ""]);
    }
  },
  TIMEOUT_MS,
);

test("a plugin without a fixture is one clear error in each suite", () => {
  rmSync(join(root, "plugins/vrf/fixture.ts"));
  for (const file of ["e2e/conformance/check_test.ts", "e2e/every_plugin_vm_test.ts", "e2e/budget_test.ts"]) {
    expect(runSuite({ files: [file] }).output).toMatch(
      /Every plugin needs a fixture.*add .*\/plugins\/vrf\/fixture\.ts/,
    );
  }
});

test("nameProblem() refuses names that exist, mean something else, or are no plugin names", () => {
  expect(nameProblem("link-group")).toBe("");
  expect(nameProblem("bridge")).toContain("already");
  for (const name of ["run", "lib", "cni", "common"]) expect(nameProblem(name)).toContain("something else");
  for (const name of ["", "Link", "link_group", "-x", "x-", "1x", "a--b", "../x", "a b"]) {
    expect(nameProblem(name)).toContain("lower-case words");
  }
});

test("instantiate() writes names and imports as they are in the plugin's folder", () => {
  const text =
    'import { x } from "../../../../plugins/lib/x.ts";\nimport { newPluginConfig, NewPluginConfig } from "../../../../spec/y.ts"; // new-plugin';
  expect(instantiate(text, "link-group")).toBe(
    'import { x } from "../lib/x.ts";\nimport { linkGroupConfig, LinkGroupConfig } from "../../spec/y.ts"; // link-group',
  );
});

test("withRegistryLine() keeps the order of names", () => {
  const registry = (...lines: string[]) =>
    `const PLUGIN_MODULES = {\n${lines.map((line) => `  ${line},\n`).join("")}};\n`;
  const bridge = 'bridge: () => import("./bridge/plugin.ts")';
  const hostLocal = '"host-local": () => import("./host_local/plugin.ts")';
  const before = registry(bridge, hostLocal);
  expect(withRegistryLine(before, "dhcp", "dhcp")).toBe(
    registry(bridge, 'dhcp: () => import("./dhcp/plugin.ts")', hostLocal),
  );
  expect(withRegistryLine(before, "x-y", "x_y")).toBe(
    registry(bridge, hostLocal, '"x-y": () => import("./x_y/plugin.ts")'),
  );
});
