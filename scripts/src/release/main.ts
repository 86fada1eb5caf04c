/** Makes everything that users install into `dist/release/`. The bytes depend on the commit, the C compilers, tar, dpkg and Debian's glibc. @module */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { parseArgs } from "node:util";
import { compileShim } from "../build/shim.ts";
import type { Processor } from "../build/runtime_patch.ts";
import { stateSamples } from "../record_state/samples.ts";
import { newScratchDirectory, REPOSITORY_ROOT, requireKept } from "../repository.ts";
import { debianPackage } from "./debian.ts";
import { programDocumentation } from "./documentation.ts";
import { glibcComponent, glibcEntries, renewGlibc } from "./glibc.ts";
import { ARCHITECTURES, imageArchive } from "./image.ts";
import { libraryPackage } from "./library.ts";
import { runLanes, TESTS } from "./lanes.ts";
import { licenceTexts } from "./licences.ts";
import { type Binaries, gzip, pluginArchive } from "./plugin_archive.ts";
import { reproduceRelease } from "./reproduce.ts";
import { softwareBillOfMaterials } from "./sbom.ts";
import { findReleaseSource, type ReleaseSource } from "./source.ts";

const SUMS = "SHA256SUMS";
const PROCESSORS = ["x64", "arm64"] as const;

function buildBinaries(processor: Processor, { commit }: ReleaseSource, scratch: string): Binaries {
  const shim = compileShim(processor);
  const file = join(scratch, processor);
  const command = [process.execPath, join(REPOSITORY_ROOT, "scripts/src/build/main.ts")];
  const flags = [`--target=bun-linux-${processor}`, `--outfile=${file}`, ...commit ? [`--commit=${commit}`] : []];
  const { success } = Bun.spawnSync([...command, ...flags], { stdout: "inherit", stderr: "inherit" });
  if (!success) throw new Error(`Cannot build for ${processor}`);
  const program = readFileSync(file);
  rmSync(file);
  return { program, shim };
}

/** By the program for this machine. */
function printDocumentation(built: readonly ({ readonly processor: Processor } & Binaries)[], scratch: string) {
  const { program } = built.find(({ processor }) => processor === process.arch)!;
  const file = join(scratch, "cni");
  writeFileSync(file, program, { mode: 0o755 });
  return programDocumentation(file);
}

/** Refuses packages that violate the policy of Debian, where lintian(1) is installed. */
function checkPackages(directory: string): void {
  if (!Bun.which("lintian")) return console.log("Not checking the packages: lintian is not installed");
  const packages = readdirSync(directory).filter((name) => name.endsWith(".deb"));
  const command = ["lintian", "--allow-root", "--fail-on", "error,warning", ...packages];
  const { success } = Bun.spawnSync(command, { cwd: directory, stdout: "inherit", stderr: "inherit" });
  if (!success) throw new Error("Cannot make a release: lintian found what is printed above");
}

/** Later versions are tested with what this one writes. */
function requireStateSample({ version }: ReleaseSource): void {
  if (stateSamples().has(version)) return;
  throw new Error(`Cannot make a release: testdata/state has no files of ${version}: run scripts/record_state`);
}

/** Refuses a library that the registry of Deno would not take. */
function checkLibrary(): void {
  const command = [join(REPOSITORY_ROOT, "node_modules/.bin/deno"), "publish", "--dry-run", "--allow-dirty", "--quiet"];
  const { success } = Bun.spawnSync(command, { cwd: REPOSITORY_ROOT, stdout: "inherit", stderr: "inherit" });
  if (!success) throw new Error("Cannot make a release: deno publish found what is printed above");
}

/** The directory is replaced as a whole. @throws {Error} if it has anything but a release */
export function requireReplaceable(directory: string): void {
  const names = existsSync(directory) ? readdirSync(directory) : [];
  const sums = names.includes(SUMS) ? readFileSync(join(directory, SUMS), "utf8") : "";
  const parts = new Set([SUMS, TESTS, ...sums.split("\n").map((line) => line.split("  ")[1])]);
  const other = names.find((name) => !parts.has(name));
  if (other === undefined) return;
  throw new Error(
    `Cannot make a release in "${directory}": "${other}" is no part of one; name a new directory by --out`,
  );
}

/** In the form of sha256sum(1). */
export function sha256Sums(directory: string): string {
  return readdirSync(directory).sort().map((name) => {
    const hash = new Bun.CryptoHasher("sha256").update(readFileSync(join(directory, name))).digest("hex");
    return `${hash}  ${name}\n`;
  }).join("");
}

function makeRelease(source: ReleaseSource, directory: string, scratch: string): void {
  requireStateSample(source);
  const texts = licenceTexts();
  const write = (name: string, data: string | Uint8Array) => writeFileSync(join(directory, name), data);
  const built = PROCESSORS.map((processor) => ({ processor, ...buildBinaries(processor, source, scratch) }));
  const documentation = printDocumentation(built, scratch);
  const parts = built.map(({ processor, ...binaries }) => {
    const architecture = ARCHITECTURES[processor];
    const executables = { ...binaries, libraries: glibcEntries(processor) };
    const archive = gzip(pluginArchive(executables, texts, source.time));
    write(`cni-plugins-linux-${architecture}-v${source.version}.tgz`, archive);
    const debian = debianPackage({ ...source, architecture }, executables, texts, documentation);
    write(`cni_${source.version}_${architecture}.deb`, debian);
    return { processor, ...executables };
  });
  write(`cni-library-v${source.version}.tgz`, libraryPackage(source.time));
  write(`cni-image-v${source.version}.tar`, imageArchive(parts, texts, source));
  const glibc = parts.map(({ processor, libraries }) => glibcComponent(processor, libraries));
  write(`cni-v${source.version}.cdx.json`, softwareBillOfMaterials(glibc));
  writeFileSync(join(directory, SUMS), sha256Sums(directory));
}

function main(): void {
  const flag = { type: "boolean" } as const;
  const { values } = parseArgs({
    options: { out: { type: "string" }, uncommitted: flag, reproduce: flag, "skip-tests": flag, "keep-glibc": flag },
  });
  if (values.reproduce) return console.log(reproduceRelease());
  const output = resolve(values.out ?? join(REPOSITORY_ROOT, "dist/release"));
  requireKept(output);
  requireReplaceable(output);
  const source = findReleaseSource(values.uncommitted === true);
  checkLibrary();
  // Security updates of Debian do not wait for a new checkout. Before the lanes: the archive may be away.
  if (!values["keep-glibc"]) renewGlibc();
  const tests = values["skip-tests"] ? "Not tested: made with --skip-tests\n" : runLanes();
  mkdirSync(dirname(output), { recursive: true });
  // A release is there as a whole, or not at all.
  using scratch = newScratchDirectory(dirname(output));
  const directory = join(scratch.path, "release");
  mkdirSync(directory);
  makeRelease(source, directory, scratch.path);
  checkPackages(directory);
  // After the sums: the bytes of a release do not depend on what was tested.
  writeFileSync(join(directory, TESTS), tests);
  rmSync(output, { recursive: true, force: true });
  renameSync(directory, output);
  console.log(`${relative(REPOSITORY_ROOT, output)}:\n${readFileSync(join(output, SUMS), "utf8").trimEnd()}`);
}

if (import.meta.main) {
  try {
    main();
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  }
}
