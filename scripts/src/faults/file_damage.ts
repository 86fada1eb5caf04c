/** Files as a power cut, a full disk or somebody's hand leaves them, in every place where state is kept. @module */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { FaultCase, FaultOutcome } from "./experiment.ts";
import { mustSucceed, RESIDENT_CONTAINER, SCENARIOS, TEST_CONTAINER } from "./scenario.ts";
import { requireSameState } from "../harness/node_state.ts";
import type { Invocation } from "./invocation.ts";

/** What becomes of a file. */
const DAMAGE_KINDS: Readonly<Record<string, (content: Uint8Array) => Uint8Array>> = {
  empty: () => new Uint8Array(0),
  half: (content) => content.subarray(0, content.length >> 1),
  zeros: (content) => new Uint8Array(content.length),
  garbage: () => Uint8Array.from({ length: 300 }, (_, index) => index * 37 % 256),
};

const STATE_DIRECTORIES = [
  "/var/lib/cni/results",
  "/var/lib/cni/networks/faults",
  "/var/lib/cni/networks",
  "/var/lib/cni",
  "/run/cni/tuning",
];
/** Nothing need be said of files that are made anew whenever they do not fit, and of those that a command does not look into. */
function isDetected(verb: string, path: string, kind: string): boolean {
  if (/\.index$|lock$|\/\.subject:eth0(:[0-9a-f]{8})?$/.test(path)) return false;
  if (path.includes("last_reserved")) return verb === "add";
  return !isUndetectable(path, kind);
}

/** Half an id is the id of somebody, as far as anybody can tell who does not know all containers: with them all, a GC can. */
function isUndetectable(path: string, kind: string): boolean {
  return kind === "half" && isReservation(path);
}

/** Each file of an attachment damaged before its DEL; and before an ADD that finds it, as after a restart of the machine. */
export function fileDamageCases(invocation: Invocation): readonly FaultCase[] {
  SCENARIOS.del.prepare(invocation);
  mustSucceed(invocation, "add", TEST_CONTAINER);
  const files = stateFilePaths();
  return (["del", "add"] as const).flatMap((verb) =>
    files.flatMap((file) =>
      Object.keys(DAMAGE_KINDS).map((kind) => ({
        name: `${verb} ${file} ${kind}`,
        kind,
        run: () => outcomeOf(() => runWithDamage(invocation, verb, file, kind)),
      }))
    )
  );
}

function outcomeOf(call: () => void): FaultOutcome {
  try {
    call();
    return { result: "succeeded" };
  } catch (error) {
    return { result: "FAILED", problem: error instanceof Error ? error.message : String(error) };
  }
}

function runWithDamage(invocation: Invocation, verb: "del" | "add", path: string, kind: string): void {
  const { prepare, snapshot } = SCENARIOS.del;
  prepare(invocation);
  addForeignFiles();
  const before = snapshot();
  mustSucceed(invocation, "add", TEST_CONTAINER);
  const damaged = DAMAGE_KINDS[kind]!(readFileSync(path));
  if (verb === "add") mustSucceed(invocation, "del", TEST_CONTAINER);
  // A file of its own: others may be further names of it.
  rmSync(path, { force: true });
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, damaged);
  const { exitCode, stdout, stderr } = invocation.call(verb, TEST_CONTAINER);
  if (exitCode !== 0) throw new Error(`It ended with ${exitCode}: ${stdout}${stderr}`);
  if (isDetected(verb, path, kind) && !stderr.includes(path)) {
    throw new Error(`It said nothing of "${path}": ${stderr}`);
  }
  if (verb === "add") {
    mustSucceed(invocation, "check", TEST_CONTAINER);
    mustSucceed(invocation, "del", TEST_CONTAINER);
  }
  if (isUndetectable(path, kind)) mustSucceed(invocation, "gc", RESIDENT_CONTAINER);
  requireSameState("It left", before, snapshot());
  mustSucceed(invocation, "add", TEST_CONTAINER);
  mustSucceed(invocation, "check", TEST_CONTAINER);
  mustSucceed(invocation, "del", TEST_CONTAINER);
  requireSameState("A further ADD and DEL left", before, snapshot());
}

/** What belongs to the container, or to all of the network. */
function stateFilePaths(): string[] {
  return STATE_DIRECTORIES.flatMap((directory) =>
    existsSync(directory)
      ? readdirSync(directory, { withFileTypes: true }).filter((entry) => entry.isFile())
        .map(({ name }) => join(directory, name)).filter(isOwn).sort()
      : []
  );
}

const isOwn = (path: string): boolean =>
  !path.includes("stranger") &&
  (/subject|lock$|last_reserved|index$/.test(path) ||
    isReservation(path) && readFileSync(path, "utf8").startsWith("subject"));

const isReservation = (path: string): boolean => /\/(10|fd00)[.:\d]+$/.test(path);

/** Files of which nobody knows whose they are. */
function addForeignFiles(): void {
  for (const directory of STATE_DIRECTORIES.filter((path) => existsSync(path))) {
    for (const name of ["stranger.txt", ".stranger", "stranger.json"]) {
      writeFileSync(join(directory, name), "no business of yours");
    }
  }
}
