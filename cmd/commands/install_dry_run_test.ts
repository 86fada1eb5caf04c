/** What a dry run of install and uninstall says is what they do. */
import { beforeEach, expect, test } from "bun:test";
import {
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import type { Effect } from "../../inspect/effects/effect.ts";
import { dryRun } from "../../inspect/effects/dry_run.ts";
import { useDirectory } from "../../testing/directory.ts";
import { CNI_UNDER_TEST } from "../../testing/binary.ts";
import { INSTALLED_PLUGINS, INSTALLED_SHIM, newInstallHome } from "../../testing/install_home.ts";
import { install, type InstallOptions, removeFullProgram, removeUnneededLibraries } from "./install.ts";
import { planUninstall, uninstall } from "../install/uninstall_steps.ts";

const root = useDirectory("cni-install-dry-");

let home = "";
let bin = "";
let program = "";
beforeEach(() => {
  ({ home, bin, program } = newInstallHome(root));
});

function put(options: Partial<InstallOptions> = {}): void {
  install({ directory: bin, program, names: INSTALLED_PLUGINS, force: true, copy: false, ...options });
  if (!options.shim) removeFullProgram(bin, program);
  removeUnneededLibraries({ directory: bin, program, names: [], force: true, copy: options.copy ?? false });
}

function takeOut(): void {
  const directory = realpathSync(bin);
  uninstall(planUninstall({ directory, program, names: INSTALLED_PLUGINS }), directory);
}

/** Of all below a directory: what each path is. */
function snapshot(directory = home): ReadonlyMap<string, string> {
  return new Map(
    readdirSync(directory).flatMap((name): [string, string][] => {
      const path = join(directory, name);
      const stat = lstatSync(path);
      if (stat.isDirectory()) return [[path, "directory"], ...snapshot(path)];
      const what = stat.isSymbolicLink() ? `-> ${readlinkSync(path)}` : readFileSync(path, "utf8");
      return [[path, `${stat.ino} ${what}`]];
    }),
  );
}

/** @returns effects, after a look that they are what the command itself changes */
function compare(command: () => void): readonly Effect[] {
  const before = snapshot();
  const { effects, failure } = dryRun(command);
  expect(failure).toBeUndefined();
  expect(snapshot()).toEqual(before);
  command();
  const after = snapshot();
  const changed = [...new Set([...before.keys(), ...after.keys()])].filter((path) =>
    before.get(path) !== after.get(path)
  );
  const moved = effects.flatMap(({ sentence }) => /^rename file "(.*)" to /.exec(sentence)?.[1] ?? []);
  expect([...effects.map(({ target }) => target), ...moved].sort()).toEqual(changed.sort());
  return effects;
}

function putForeign(): void {
  mkdirSync(bin, { recursive: true });
  writeFileSync(join(bin, "bridge"), "of another", { mode: 0o755 });
  symlinkSync("/usr/libexec/portmap", join(bin, "portmap"));
}

test("links in a new directory", () => {
  const effects = compare(() => put());
  expect(effects.map(({ sentence }) => sentence)).toEqual([
    `create directory "${join(home, "opt")}"`,
    `create directory "${bin}"`,
    ...["cni", "bridge", "portmap"].map((name) => `link "${join(bin, name)}" to "../../usr/cni"`),
  ]);
  expect(compare(() => put())).toEqual([]);
});

test.each<[string, () => Partial<InstallOptions>]>([
  ["links", () => ({})],
  ["copies", () => ({ copy: true })],
  ["shims", () => ({ shim: INSTALLED_SHIM })],
  ["copies and shims", () => ({ copy: true, shim: INSTALLED_SHIM })],
])("%s in place of files of others, and back", (_, options) => {
  putForeign();
  compare(() => put(options()));
  expect(compare(() => put(options()))).toEqual([]);
  compare(takeOut);
  expect(compare(takeOut)).toEqual([]);
  expect(readFileSync(join(bin, "bridge"), "utf8")).toBe("of another");
  expect(readlinkSync(join(bin, "portmap"))).toBe("/usr/libexec/portmap");
});

test("libraries beside the program, with copies, and without", () => {
  const libraries = join(home, "usr/cni-lib");
  mkdirSync(libraries);
  for (const name of ["ld-linux-x86-64.so.2", "libc.so.6"]) writeFileSync(join(libraries, name), name);
  compare(() => put({ copy: true, shim: INSTALLED_SHIM }));
  writeFileSync(join(libraries, "libc.so.6"), "6.os.cbil");
  compare(() => put({ copy: true }));
  expect(compare(() => put({ copy: true }))).toEqual([]);
  compare(() => put());
  compare(() => put({ copy: true }));
  compare(takeOut);
});

test("from shims to links and to copies", () => {
  put({ shim: INSTALLED_SHIM });
  compare(() => put());
  compare(() => put({ copy: true }));
  compare(takeOut);
});

test("a foreign file is refused in a dry run too", () => {
  putForeign();
  const { failure, effects } = dryRun(() => put({ force: false }));
  expect([(failure as Error).message, effects]).toEqual([expect.stringContaining("bridge"), []]);
});

const cni = (...words: string[]) => {
  const { exitCode, stdout, stderr } = Bun.spawnSync([CNI_UNDER_TEST, ...words]);
  return { exitCode, stdout: stdout.toString(), stderr: stderr.toString() };
};

test("the commands print it, also as JSON", () => {
  const before = snapshot();
  const { exitCode, stdout, stderr } = cni("install", bin, "--dry-run", "--verbose");
  expect([exitCode, stderr]).toEqual([0, ""]);
  expect(stdout).toContain(`would create directory "${bin}"\n`);
  expect(stdout).toContain(`would link "${join(bin, "cni-full")}" to "`);
  expect(cni("install", bin, "--no-shim", "--dry-run", "--verbose").stdout).toContain(
    `would link "${join(bin, "bridge")}" to "`,
  );
  expect(snapshot()).toEqual(before);
  const document = JSON.parse(cni("install", bin, "--dry-run", "--json").stdout);
  expect(document.effects).toContainEqual(expect.objectContaining({ kind: "file", target: join(bin, "bridge") }));
  expect(cni("install", bin).exitCode).toBe(0);
  const installed = snapshot();
  expect(cni("uninstall", bin, "--dry-run").stdout).toMatch(/would remove files in ".*": cni, /);
  expect(JSON.parse(cni("uninstall", bin, "--dry-run", "--json").stdout).effects).not.toEqual([]);
  expect(snapshot()).toEqual(installed);
  expect(cni("uninstall", bin, "-v").stderr).toContain("--verbose says what --dry-run prints: give both");
});
