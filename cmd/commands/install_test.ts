import { beforeEach, describe, expect, test } from "bun:test";
import {
  chmodSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { useDirectory } from "../../testing/directory.ts";
import { EINVAL } from "../../ffi/sys/errno.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { interceptSystemCalls } from "../../ffi/sys/intercept.ts";
import { PROGRAM_MARK } from "../../ffi/sys/program_mark.ts";
import { install, type InstallOptions, relativePath, removeFullProgram, removeUnneededLibraries } from "./install.ts";

const root = useDirectory("cni-install-");

let home = "";
let homes = 0;
let bin = "";
let program = "";
beforeEach(() => {
  home = join(root, String(homes++));
  bin = join(home, "opt/cni/bin");
  program = join(home, "usr/lib/cni");
  mkdirSync(join(home, "usr/lib"), { recursive: true });
  writeFileSync(program, "program", { mode: 0o755 });
  utimesSync(program, 1_000_000_000.25, 1_500_000_000.25);
});

const put = (options: Partial<InstallOptions> = {}) =>
  install({ directory: bin, program, names: ["bridge", "portmap"], force: false, copy: false, ...options });
const links = () => Object.fromEntries(readdirSync(bin).sort().map((name) => [name, readlinkSync(join(bin, name))]));

test("install() makes the directory and relative links to the program", () => {
  const done = put();
  const target = "../../../usr/lib/cni";
  expect(links()).toEqual({ bridge: target, cni: target, portmap: target });
  expect(readFileSync(join(bin, "bridge"), "utf8")).toBe("program");
  expect(done.map(({ path, changed }) => [path, changed])).toEqual([
    [`${bin}/cni`, true],
    [`${bin}/bridge`, true],
    [`${bin}/portmap`, true],
  ]);
});

test("install() changes nothing the second time", () => {
  put();
  const before = lstatSync(join(bin, "bridge")).ino;
  expect(put().some(({ changed }) => changed)).toBe(false);
  expect(lstatSync(join(bin, "bridge")).ino).toBe(before);
});

test("install() links to the program where it is, not to links that lead there or to the directory", () => {
  symlinkSync(program, join(home, "alias"));
  mkdirSync(bin, { recursive: true });
  symlinkSync(bin, join(home, "plugins"));
  put({ program: join(home, "alias"), directory: join(home, "plugins") });
  expect(links().bridge).toBe("../../../usr/lib/cni");
});

test("install() beside the program links by name and leaves the program alone", () => {
  mkdirSync(bin, { recursive: true });
  const own = join(bin, "cni");
  writeFileSync(own, "program");
  put({ program: own });
  expect(lstatSync(own).isSymbolicLink()).toBe(false);
  expect(readlinkSync(join(bin, "bridge"))).toBe("cni");
  put({ program: own, copy: true });
  expect(statSync(join(bin, "bridge")).ino).toBe(statSync(own).ino);
});

test.each([
  ["a program", () => writeFileSync(join(bin, "portmap"), "other")],
  ["a link elsewhere", () => symlinkSync("/bin/true", join(bin, "portmap"))],
  ["a link to a program of our name", () => {
    writeFileSync(join(home, "usr/cni"), "several plugins of another");
    symlinkSync("../../../usr/cni", join(bin, "portmap"));
  }],
  ["a broken link", () => symlinkSync("/nonexistent/portmap", join(bin, "portmap"))],
])("install() refuses to replace %s of somebody else before it changes anything, unless forced", (_, occupy) => {
  mkdirSync(bin, { recursive: true });
  occupy();
  for (const copy of [false, true]) {
    expect(() => put({ copy })).toThrow(`files of other programs are there: ${bin}/portmap (use --force`);
    expect(readdirSync(bin)).toEqual(["portmap"]);
  }
  const before = contentOf(join(bin, "portmap"));
  const replaced = put({ force: true }).find(({ path }) => path.endsWith("/portmap"));
  expect(replaced?.backup).toBe(join(bin, ".cni-backup/portmap"));
  expect(readFileSync(join(bin, "portmap"), "utf8")).toBe("program");
  expect(contentOf(replaced!.backup!)).toBe(before);
  expect(readdirSync(join(bin, ".cni-backup"))).toEqual(["portmap"]);
  // What is replaced after that is ours.
  expect(put({ force: true, copy: true }).map(({ backup }) => backup)).toEqual([undefined, undefined, undefined]);
  expect(contentOf(replaced!.backup!)).toBe(before);
});

test("install() never loses what it replaced first, nor what was put over it", () => {
  mkdirSync(bin, { recursive: true });
  const path = join(bin, "portmap");
  const replaceWith = (content: string) => {
    rmSync(path, { force: true });
    writeFileSync(path, content);
    utimesSync(path, 1_000_000_000, 1_000_000_000);
  };
  const backup = join(bin, ".cni-backup/portmap");
  replaceWith("first");
  put({ force: true });
  replaceWith("second");
  expect(() => put({ force: true })).toThrow(
    `Cannot install into "${bin}": backups of earlier files would be lost: ${backup} (move either them or the new files away)`,
  );
  expect([contentOf(path), contentOf(backup)]).toEqual(["second", "first"]);
  // What is kept already is no loss.
  replaceWith("first");
  put({ force: true });
  expect([readFileSync(path, "utf8"), contentOf(backup)]).toEqual(["program", "first"]);
});

/** Of a link where it leads. */
const contentOf = (path: string) =>
  lstatSync(path).isSymbolicLink() ? `-> ${readlinkSync(path)}` : readFileSync(path, "utf8");

test("install() never replaces a directory", () => {
  mkdirSync(join(bin, "portmap"), { recursive: true });
  expect(() => put({ force: true })).toThrow("a directory is never replaced");
});

test.each([
  ["a link to this program by another path", () => symlinkSync(program, join(bin, "bridge"))],
  ["a link to another version", () => {
    writeFileSync(join(home, "usr/cni"), `version 2${PROGRAM_MARK}`);
    symlinkSync("../../../usr/cni", join(bin, "bridge"));
  }],
  ["a link to another version that is gone", () => symlinkSync("/nonexistent/cni", join(bin, "bridge"))],
  ["another name of this program", () => linkSync(program, join(bin, "bridge"))],
])("install() replaces %s", (_, occupy) => {
  mkdirSync(bin, { recursive: true });
  occupy();
  put();
  expect(links().bridge).toBe("../../../usr/lib/cni");
});

test("install() with copies puts one file under all names, with the program's permissions and time", () => {
  put({ copy: true });
  expect(readdirSync(bin).sort()).toEqual(["bridge", "cni", "portmap"]);
  const [copy, bridge, original] = [join(bin, "cni"), join(bin, "bridge"), program].map((path) =>
    lstatSync(path, { bigint: true })
  ) as [
    ReturnType<typeof lstatSync> & { ino: bigint; mtimeNs: bigint; mode: bigint },
    { ino: bigint },
    { ino: bigint; mtimeNs: bigint; mode: bigint },
  ];
  expect(bridge.ino).toBe(copy.ino);
  expect(copy.ino).not.toBe(original.ino);
  expect(copy.mtimeNs).toBe(original.mtimeNs);
  expect(copy.mode).toBe(original.mode);
  expect(readFileSync(join(bin, "portmap"), "utf8")).toBe("program");
  expect(put({ copy: true }).some(({ changed }) => changed)).toBe(false);
});

test.each([undefined, () => undefined])(
  "install() lets all users run a copy of what others may not (%p)",
  (findProblem) => {
    const tried = findProblem && { findProblem };
    const modes = (...paths: readonly string[]) =>
      paths.map((path) => (statSync(join(bin, path)).mode & 0o7777).toString(8));
    chmodSync(program, 0o700);
    mkdirSync(join(home, "usr/lib/cni-lib"));
    writeFileSync(join(home, "usr/lib/cni-lib/libc.so.6"), "libc", { mode: 0o600 });
    put({ copy: true, shim: shim(1), ...tried });
    const paths = ["cni-full", "bridge", "cni-lib/libc.so.6"] as const;
    expect(modes(...paths)).toEqual(["755", "755", "644"]);
    // Those of another version, or of whoever has copied them.
    for (const path of paths) chmodSync(join(bin, path), 0o600);
    put({ copy: true, shim: shim(1), ...tried });
    expect(modes(...paths)).toEqual(["755", "755", "644"]);
    expect(put({ copy: true, shim: shim(1), ...tried }).some(({ changed }) => changed)).toBe(false);
    put({ copy: true, ...tried });
    expect(modes("cni", "bridge")).toEqual(["755", "755"]);
  },
);

test("install() lets all users run a program that is in the directory already", () => {
  mkdirSync(bin, { recursive: true });
  writeFileSync(join(bin, "cni"), `program${PROGRAM_MARK}`, { mode: 0o700 });
  put({ program: join(bin, "cni"), shim: shim(1), findProblem: () => undefined });
  expect(textsOf()).toEqual({ ...shimTexts(1), "cni-full": `program${PROGRAM_MARK}` });
  expect(statSync(join(bin, "cni-full")).mode & 0o7777).toBe(0o755);
});

test("install() changes between links and copies", () => {
  put();
  put({ copy: true });
  expect(lstatSync(join(bin, "bridge")).isFile()).toBe(true);
  put();
  expect(lstatSync(join(bin, "bridge")).isSymbolicLink()).toBe(true);
  expect(readdirSync(bin).sort()).toEqual(["bridge", "cni", "portmap"]);
});

test("install() over copies of another version replaces all of them", () => {
  for (const version of [1, 2, 3]) {
    writeFileSync(program, `program ${version}${PROGRAM_MARK}`);
    const copy = version < 3;
    put({ copy });
    const texts = readdirSync(bin).map((name) => readFileSync(join(bin, name), "utf8"));
    expect(texts).toEqual(Array(3).fill(`program ${version}${PROGRAM_MARK}`));
    expect(lstatSync(join(bin, "bridge")).isFile()).toBe(copy);
  }
});

test("install() takes a program without our mark at its end for somebody else's, however short", () => {
  put({ copy: true });
  for (const content of ["", "program 2", `${PROGRAM_MARK}program`]) {
    writeFileSync(program, `${content}!${PROGRAM_MARK}`);
    writeFileSync(join(bin, "bridge"), content);
    expect(() => put({ copy: true })).toThrow(`${bin}/bridge`);
  }
  put({ copy: true, force: true });
  expect(readFileSync(join(bin, "bridge"), "utf8")).toEndWith(PROGRAM_MARK);
});

test("install() copies what is larger than one read", () => {
  const bytes = Buffer.alloc(3_000_000, "0123456789");
  writeFileSync(program, bytes);
  chmodSync(program, 0o755);
  put({ copy: true });
  expect(readFileSync(join(bin, "cni")).equals(bytes)).toBe(true);
});

const shim = (version: number) => Buffer.from(`shim ${version}${PROGRAM_MARK}`);
const textsOf = () =>
  Object.fromEntries(readdirSync(bin).sort().map((name) => [name, readFileSync(join(bin, name), "utf8")]));
const shimTexts = (version: number) => {
  const text = shim(version).toString();
  return { bridge: text, cni: text, "cni-full": "program", portmap: text };
};

test("install() with shims puts one file under all names, and the program beside them", () => {
  const done = put({ shim: shim(1) });
  expect(textsOf()).toEqual(shimTexts(1));
  expect(readlinkSync(join(bin, "cni-full"))).toBe("../../../usr/lib/cni");
  const [command, bridge] = ["cni", "bridge"].map((name) => lstatSync(join(bin, name)));
  expect([command!.ino, command!.mode & 0o7777]).toEqual([bridge!.ino, 0o755]);
  expect(done.map(({ path, target }) => [path.slice(bin.length + 1), target])).toEqual([
    ...[["cni-full", "../../../usr/lib/cni"], ["cni", "shim"], ["bridge", "cni"], ["portmap", "cni"]],
  ]);
  expect(put({ shim: shim(1) }).some(({ changed }) => changed)).toBe(false);
});

test("install() with shims and copies needs nothing outside of the directory", () => {
  put({ shim: shim(1), copy: true });
  rmSync(program);
  expect(textsOf()).toEqual(shimTexts(1));
});

test.each([false, true])("install() replaces shims of another version (copies: %j)", (copy) => {
  writeFileSync(program, `program 1${PROGRAM_MARK}`);
  put({ shim: shim(1), copy });
  writeFileSync(program, `program 2${PROGRAM_MARK}`);
  expect(put({ shim: shim(2), copy }).map(({ changed }) => changed)).toEqual([copy, true, true, true]);
  expect(textsOf()).toEqual({ ...shimTexts(2), "cni-full": `program 2${PROGRAM_MARK}` });
});

test("install() keeps a program that is in the directory under the name that shims look for", () => {
  mkdirSync(bin, { recursive: true });
  writeFileSync(join(bin, "cni"), `program${PROGRAM_MARK}`, { mode: 0o755 });
  put({ program: join(bin, "cni"), shim: shim(1) });
  expect(textsOf()).toEqual({ ...shimTexts(1), "cni-full": `program${PROGRAM_MARK}` });
  expect(lstatSync(join(bin, "cni-full")).isFile()).toBe(true);
  // As that program is called by its shim.
  const again = put({ program: join(bin, "cni-full"), shim: shim(1) });
  expect(again.some(({ changed }) => changed)).toBe(false);
  put({ program: join(bin, "cni-full") });
  expect(["bridge", "cni", "portmap"].map((name) => readlinkSync(join(bin, name)))).toEqual(Array(3).fill("cni-full"));
});

test("install() with shims refuses to replace files of others, unless forced", () => {
  mkdirSync(bin, { recursive: true });
  for (const name of ["bridge", "cni-full"]) writeFileSync(join(bin, name), `${name} of another`);
  expect(() => put({ shim: shim(1) })).toThrow(`files of other programs are there: ${bin}/cni-full, ${bin}/bridge`);
  expect(readdirSync(bin).sort()).toEqual(["bridge", "cni-full"]);
  put({ shim: shim(1), force: true });
  const { ".cni-backup": _directory, ...texts } = Object.fromEntries(
    readdirSync(bin).filter((name) => name !== ".cni-backup").map((
      name,
    ) => [name, readFileSync(join(bin, name), "utf8")]),
  );
  expect(texts).toEqual(shimTexts(1));
  for (const name of ["bridge", "cni-full"]) {
    expect(readFileSync(join(bin, ".cni-backup", name), "utf8")).toBe(`${name} of another`);
  }
});

test.each([false, true])("install() goes back from shims to the program (copies: %j)", (copy) => {
  put({ copy });
  const before = textsOf();
  put({ shim: shim(1), copy });
  put({ copy });
  expect(removeFullProgram(bin, program)).toBe(join(bin, "cni-full"));
  expect(textsOf()).toEqual(before);
  expect(removeFullProgram(bin, program)).toBeUndefined();
});

test("removeFullProgram() keeps the program that runs, and one of others", () => {
  mkdirSync(bin, { recursive: true });
  const path = join(bin, "cni-full");
  writeFileSync(path, `program${PROGRAM_MARK}`);
  expect(removeFullProgram(bin, path)).toBeUndefined();
  writeFileSync(path, "of another");
  expect(removeFullProgram(bin, program)).toBeUndefined();
  expect(existsSync(path)).toBe(true);
});

test("install() fails for a program that is not there", () => {
  expect(() => put({ program: join(home, "absent") })).toThrow("ENOENT");
  expect(existsSync(join(bin, "bridge"))).toBe(false);
});

test.each([
  ["/opt/cni/bin", "/usr/lib/cni", "../../../usr/lib/cni"],
  ["/opt/cni/bin", "/opt/cni/cni", "../cni"],
  ["/opt/cni/bin", "/opt/cni/bin/cni", "cni"],
  ["/opt/cni/bin", "/opt/cni/bin", "../bin"],
  ["/", "/cni", "cni"],
  ["/a", "/cni", "../cni"],
  ["/opt/cni", "/opt/cni-1/cni", "../cni-1/cni"],
])("relativePath() from %j to %j is %j", (directory, path, expected) => {
  expect(relativePath(directory, path)).toBe(expected);
});

test("install() tells how far a copy is", () => {
  const told: (readonly number[])[] = [];
  put({ copy: true, progress: (...parts) => told.push(parts) });
  expect(told).toEqual([[7, 7]]);
});

describe("libraries beside the program", () => {
  let libraries = "";
  beforeEach(() => {
    libraries = join(home, "usr/lib/cni-lib");
    mkdirSync(libraries);
    for (const name of ["ld-linux-x86-64.so.2", "libc.so.6", "copyright"]) writeFileSync(join(libraries, name), name);
  });
  const installed = () => readdirSync(join(bin, "cni-lib")).sort();
  const row = (files: ReturnType<typeof put>) => files.find(({ path }) => path === `${bin}/cni-lib`);

  test("install() copies them with the program, and again only if they differ", () => {
    expect(row(put())).toBeUndefined();
    expect(row(put({ copy: true }))).toEqual({
      path: `${bin}/cni-lib`,
      target: `copy of ${libraries}`,
      changed: true,
    });
    expect(installed()).toEqual(["copyright", "ld-linux-x86-64.so.2", "libc.so.6"]);
    expect(row(put({ copy: true }))?.changed).toBe(false);
    // Of the same size, as those of two patches may be.
    writeFileSync(join(libraries, "libc.so.6"), "6.os.cbil");
    rmSync(join(libraries, "copyright"));
    expect(row(put({ copy: true, shim: Buffer.from("shim") }))?.changed).toBe(true);
    expect(installed()).toEqual(["ld-linux-x86-64.so.2", "libc.so.6"]);
    expect(readFileSync(join(bin, "cni-lib/libc.so.6"), "utf8")).toBe("6.os.cbil");
  });

  test("install() replaces those that a killed install has left half written", () => {
    mkdirSync(join(bin, "cni-lib"), { recursive: true });
    for (const name of ["libc.so.6", ".libm.so.6.71.tmp"]) writeFileSync(join(bin, "cni-lib", name), "");
    expect(row(put({ copy: true }))?.changed).toBe(true);
    expect(installed()).toEqual(["copyright", "ld-linux-x86-64.so.2", "libc.so.6"]);
  });

  test("install() copies them once, and puts all in place in one step", () => {
    const inodes = (directory: string) =>
      ["", "libc.so.6"].map((name) => statSync(join(directory, "cni-lib", name)).ino);
    let tried: readonly number[] = [];
    const findProblem = (plugin: string) => {
      tried = inodes(join(plugin, ".."));
      return undefined;
    };
    for (const text of ["first", "second"]) {
      writeFileSync(join(libraries, "libc.so.6"), text);
      expect(row(put({ copy: true, findProblem }))?.changed).toBe(true);
      expect(inodes(bin)).toEqual([...tried]);
    }
    const installedInodes = inodes(bin);
    expect(row(put({ copy: true, findProblem }))?.changed).toBe(false);
    expect(inodes(bin)).toEqual(installedInodes);
  });

  test("install() keeps the old ones until a call has loaded them", async () => {
    const findProblem = () => undefined;
    put({ copy: true, findProblem });
    writeFileSync(join(libraries, "libc.so.6"), "second");
    const call = Bun.spawn(["flock", "--shared", join(bin, "cni-lib"), "sh", "-c", "echo locked; exec sleep 0.5"]);
    await call.stdout.getReader().read();
    const started = performance.now();
    put({ copy: true, findProblem });
    expect(performance.now() - started).toBeGreaterThan(300);
    expect(await call.exited).toBe(0);
    expect(readFileSync(join(bin, "cni-lib/libc.so.6"), "utf8")).toBe("second");
  });

  test("install() replaces each by itself where the file system cannot exchange directories", () => {
    const findProblem = () => undefined;
    put({ copy: true, findProblem });
    writeFileSync(join(libraries, "libc.so.6"), "second");
    using _refusal = interceptSystemCalls(["renameat2"], (name) => {
      throw new SystemError(name, EINVAL);
    });
    expect(row(put({ copy: true, findProblem }))?.changed).toBe(true);
    expect(readFileSync(join(bin, "cni-lib/libc.so.6"), "utf8")).toBe("second");
    expect(readdirSync(bin)).not.toContain(".cni-new");
  });

  test.each([
    ["a file", (path: string) => writeFileSync(path, "")],
    ["a link", (path: string) => symlinkSync("/nonexistent", path)],
    ["a directory with other files", (path: string) => {
      mkdirSync(path);
      writeFileSync(join(path, "libc.so.6"), "");
      writeFileSync(join(path, "data"), "");
    }],
  ])("install() never replaces %s of another program of their name", (_, occupy) => {
    mkdirSync(bin, { recursive: true });
    occupy(join(bin, "cni-lib"));
    expect(() => put({ copy: true, force: true })).toThrow(`"${bin}/cni-lib" is of another program`);
    expect(readdirSync(bin)).toEqual(["cni-lib"]);
  });

  test.each([{}, { copy: true }, { shim: Buffer.from("shim"), force: true }])(
    "install() changes nothing that dpkg has installed (%j)",
    (options) => {
      put({ copy: true });
      renameSync(join(bin, "cni-lib"), join(bin, "cni-lib-0.1.0"));
      symlinkSync("cni-lib-0.1.0", join(bin, "cni-lib"));
      writeFileSync(program, `another${PROGRAM_MARK}`);
      const before = readdirSync(bin).map((name) => [name, lstatSync(join(bin, name)).ino]);
      expect(() => put(options)).toThrow(
        `Cannot install into "${bin}": its files are of the Debian package "cni": upgrade that with apt, or name another directory`,
      );
      expect(readdirSync(bin).map((name) => [name, lstatSync(join(bin, name)).ino])).toEqual(before);
    },
  );

  test.each([{ copy: true }, { copy: true, shim: Buffer.from("shim") }, { shim: Buffer.from("shim") }])(
    "install() tries a plugin beside the others first, and changes nothing if it does not run (%j)",
    (options) => {
      mkdirSync(bin, { recursive: true });
      writeFileSync(join(bin, "portmap"), "of another");
      const tried: string[] = [];
      const findProblem = (plugin: string) => {
        tried.push(readFileSync(plugin, "utf8"));
        const program = readFileSync(join(plugin, "../cni-full"), "utf8");
        tried.push(program, ...options.copy ? readdirSync(join(plugin, "../cni-lib")).sort() : []);
        return tried.length < 10 ? "no reason" : undefined;
      };
      expect(() => put({ ...options, force: true, findProblem })).toThrow(
        `Cannot install into "${bin}": what would be there does not run (nothing was changed): no reason`,
      );
      const expected = [
        options.shim ? "shim" : "program",
        "program",
        ...options.copy ? ["copyright", "ld-linux-x86-64.so.2", "libc.so.6"] : [],
      ];
      expect(tried).toEqual(expected);
      expect(readdirSync(bin)).toEqual(["portmap"]);
      put({ ...options, force: true, findProblem: () => undefined });
      expect(readdirSync(bin)).not.toContain(".cni-new");
      expect(readFileSync(join(bin, "portmap"), "utf8")).toBe(options.shim ? "shim" : "program");
    },
  );

  test("removeUnneededLibraries() removes them when the program is elsewhere, or has none", () => {
    const remove = (copy: boolean, own = program) =>
      removeUnneededLibraries({ directory: bin, program: own, names: [], force: false, copy });
    put({ copy: true });
    expect([remove(true), remove(false, join(bin, "cni"))]).toEqual([undefined, undefined]);
    expect(remove(false)).toBe(`${bin}/cni-lib`);
    expect(remove(false)).toBeUndefined();
    put({ copy: true });
    rmSync(libraries, { recursive: true });
    expect(remove(true)).toBe(`${bin}/cni-lib`);
    expect(readdirSync(bin).sort()).toEqual(["bridge", "cni", "portmap"]);
  });
});
