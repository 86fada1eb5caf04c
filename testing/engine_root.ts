/**
 * The root of a host whose engines have a C library of their own, in a directory where nothing else looks for one. So has a host that
 * unpacks its engines from an archive.
 *
 * @module
 */
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { HOST_LOADERS } from "../scripts/src/build/start_code.ts";
import { runSuccessfully } from "../scripts/src/harness/process.ts";
import { hostLibraries, sharedLibraries } from "../scripts/src/image/main.ts";
import { writeTree } from "../scripts/src/release/tar.ts";
import { CNI_PROGRAM } from "./binary.ts";

const LIBRARIES = "/engine/lib/", LOADER = "/engine/loader";
const HOST_LOADER = HOST_LOADERS[process.arch as keyof typeof HOST_LOADERS];
const HOST_LIBRARIES = process.arch === "arm64" ? "/lib/aarch64-linux-gnu/" : "/lib/x86_64-linux-gnu/";
/** Where a program names its loader. */
const HEADER_BYTES = 4096;

/** The program of a release in it. */
export const RELEASED_PROGRAM = "/release/cni";

/** A directory, for as long as its scope. */
export interface EngineRoot extends Disposable {
  readonly path: string;
}

/** @param programs of this machine, which run there; busybox has the others */
export function newEngineRoot(programs: readonly string[]): EngineRoot {
  const path = mkdtempSync(join(tmpdir(), "cni-engine-root-"));
  for (
    const name of ["bin", "engine/lib", "etc", "proc", "release", "run", "sys", "dev", "tmp", "var/tmp", "var/lib"]
  ) {
    mkdirSync(join(path, name), { recursive: true });
  }
  const sources = programs.map((name) => realpathSync(Bun.which(name)!));
  programs.forEach((name, i) => writeProgram(join(path, "bin", name), sources[i]!));
  for (const library of new Set(sources.flatMap(sharedLibraries))) {
    if (library !== HOST_LOADER) cpSync(realpathSync(library), join(path, LIBRARIES, basename(library)));
  }
  const loader = replaceText(readFileSync(realpathSync(HOST_LOADER)), `\0${HOST_LIBRARIES}`, `\0${LIBRARIES}`);
  writeFileSync(join(path, LOADER), loader, { mode: 0o755 });
  cpSync(realpathSync(Bun.which("busybox")!), join(path, "bin/busybox"));
  for (const name of runSuccessfully({ argv: ["busybox", "--list"] }).stdout.trim().split("\n")) {
    if (!existsSync(join(path, "bin", name))) symlinkSync("busybox", join(path, "bin", name));
  }
  cpSync("/etc/containers", join(path, "etc/containers"), { recursive: true });
  for (const name of ["passwd", "group", "hosts", "resolv.conf"]) cpSync(join("/etc", name), join(path, "etc", name));
  cpSync(CNI_PROGRAM, join(path, RELEASED_PROGRAM));
  writeTree(hostLibraries(CNI_PROGRAM), join(path, "release"));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}

/** A copy that names another loader; a static program names none. */
function writeProgram(path: string, source: string): void {
  const bytes = readFileSync(source);
  const name = `${HOST_LOADER}\0`;
  const at = bytes.subarray(0, HEADER_BYTES).indexOf(name);
  if (at >= 0) bytes.write(LOADER.padEnd(name.length, "\0"), at);
  writeFileSync(path, bytes, { mode: 0o755 });
}

/** Slashes keep a path the same. */
function replaceText(bytes: Buffer, text: string, path: string): Buffer {
  const at = bytes.indexOf(text);
  if (at < 0) throw new Error(`Cannot change the loader: it does not name ${text.slice(1)}`);
  bytes.write(path.padEnd(text.length, "/"), at);
  return bytes;
}
