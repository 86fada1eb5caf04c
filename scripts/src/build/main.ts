/** Compiles `cmd/cni.ts` into `dist/cni`: `bun scripts/src/build/main.ts [--target=bun-linux-arm64] [--entry=FILE] [--outfile=FILE] [--commit=HASH]`. @module */
import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative, resolve } from "node:path";
import { parseArgs } from "node:util";
import {
  closeEnvironment,
  PATCHED_RUNTIME,
  type Processor,
  programRange,
  refuseStrip,
  skipWarmUp,
} from "./runtime_patch.ts";
import { PROGRAM_MARK } from "../../../ffi/sys/program_mark.ts";
import { copyInlined } from "./inline_constants.ts";
import { compileShim } from "./shim.ts";
import { CALL_JIT_POLICY } from "../../../server/warm_up.ts";
import { addStartCode, requireGlibc } from "./start_code.ts";
import { ensureRuntime } from "./runtime_package.ts";
import { newScratchDirectory, REPOSITORY_ROOT } from "../repository.ts";

/** Nothing of the working directory is read at run time, no other code is evaluated. The source map makes stack traces readable. */
const FLAGS = [
  "--minify",
  "--bytecode",
  "--splitting",
  "--format=esm",
  "--sourcemap",
  "--no-compile-autoload-dotenv",
  "--no-compile-autoload-bunfig",
  "--no-compile-autoload-tsconfig",
  "--no-compile-autoload-package-json",
  "--compile-exec-argv=--disallow-code-generation-from-strings=strict --no-addons --no-ffi-cc",
  "--reject-unresolved",
  // A call is over before compiled code pays; loops over thousands of reservations still get theirs.
  `--compile-jit-policy=${CALL_JIT_POLICY}`,
];

function plan() {
  const text = { type: "string" } as const;
  const { values: args } = parseArgs({ options: { target: text, entry: text, outfile: text, commit: text } });
  const target = args.target ?? `bun-linux-${process.arch}`;
  const processor = target.replace(/^bun-linux-/, "");
  if (processor !== "x64" && processor !== "arm64") {
    throw new RangeError(`Cannot build for target "${target}": expected "bun-linux-x64" or "bun-linux-arm64"`);
  }
  // A cross build must not overwrite the binary that runs here.
  const name = args.target === undefined ? "cni" : `cni-${processor}`;
  const outfile = args.outfile ?? join(REPOSITORY_ROOT, "dist", name);
  const entry = args.entry ?? join(REPOSITORY_ROOT, "cmd/cni.ts");
  return {
    processor: processor as Processor,
    entry: resolve(entry),
    outfile: resolve(outfile),
    commit: args.commit ?? "",
  };
}

/** Runs the compiler from a copy of the sources, which is in the repository, whose packages they import. */
function compile({ processor, entry, commit }: ReturnType<typeof plan>, executable: string): void {
  const runtime = ensureRuntime(processor);
  requireGlibc(runtime, processor);
  mkdirSync(join(REPOSITORY_ROOT, "dist"), { recursive: true });
  using source = newScratchDirectory(join(REPOSITORY_ROOT, "dist"));
  copyInlined(source.path, processor);
  const relativeEntry = relative(REPOSITORY_ROOT, entry);
  const { version } = JSON.parse(readFileSync(join(REPOSITORY_ROOT, "package.json"), "utf8"));
  const command = [
    process.execPath,
    "build",
    existsSync(join(source.path, relativeEntry)) ? relativeEntry : entry,
    "--compile",
    `--target=bun-linux-${processor}`,
    `--outfile=${executable}`,
    `--compile-executable-path=${runtime}`,
    `--define=process.arch=${JSON.stringify(processor)}`,
    `--define=BUILD_VERSION=${JSON.stringify(version)}`,
    `--define=BUILD_COMMIT=${JSON.stringify(commit)}`,
    `--define=BUILD_SHIM=${JSON.stringify(compileShim(processor).toString("base64"))}`,
    ...FLAGS,
  ];
  const { success, exitCode, stdout, stderr } = Bun.spawnSync(command, { cwd: source.path, stderr: "pipe" });
  if (!success) throw new Error(`Cannot compile "${entry}": exit status ${exitCode}\n${`${stdout}${stderr}`.trim()}`);
}

function build(): void {
  const planned = plan();
  const { processor, outfile } = planned;
  if (Bun.version !== PATCHED_RUNTIME) {
    throw new Error(`Cannot build with Bun ${Bun.version}: package.json pins ${PATCHED_RUNTIME}; run "npm ci"`);
  }
  const started = performance.now();
  mkdirSync(dirname(outfile), { recursive: true });
  using scratch = newScratchDirectory(dirname(outfile));
  // The base name is baked into the file, so it is the same for every target and every --outfile.
  const executable = join(scratch.path, "cni");
  compile(planned, executable);
  const bytes = readFileSync(executable);
  const closed = closeEnvironment(bytes, processor, programRange(bytes));
  skipWarmUp(bytes, processor);
  refuseStrip(bytes);
  const marked = Buffer.concat([addStartCode(bytes, processor), Buffer.from(PROGRAM_MARK)]);
  writeFileSync(executable, marked);
  chmodSync(executable, 0o755);
  renameSync(executable, outfile);
  const sha256 = new Bun.CryptoHasher("sha256").update(marked).digest("hex");
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  const size = `${(marked.length / 1e6).toFixed(1)} MB in ${seconds} s`;
  console.log(`${basename(outfile)} linux-${processor}: ${size}, ${closed} runtime variables closed, sha256 ${sha256}`);
}

try {
  build();
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}
