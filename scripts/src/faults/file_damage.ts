/** Files as a power cut, a full disk or somebody's hand leaves them, in every place where state is kept. @module */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Outcome, Trial } from "./experiment.ts";
import { must, RESIDENT, SITUATIONS, SUBJECT } from "./scenario.ts";
import { requireSame } from "../harness/node_state.ts";
import type { Way } from "./invocation.ts";

/** What becomes of a file. */
const KINDS: Readonly<Record<string, (content: Uint8Array) => Uint8Array>> = {
  empty: () => new Uint8Array(0),
  half: (content) => content.subarray(0, content.length >> 1),
  zeros: (content) => new Uint8Array(content.length),
  garbage: () => Uint8Array.from({ length: 300 }, (_, index) => index * 37 % 256),
};

const STATE = [
  "/var/lib/cni/results",
  "/var/lib/cni/networks/faults",
  "/var/lib/cni/networks",
  "/var/lib/cni",
  "/run/cni/tuning",
];
/** Nothing need be said of files that are made anew whenever they do not fit, and of those that a command does not look into. */
function isNoticed(verb: string, path: string, kind: string): boolean {
  if (/\.index$|lock$|\/\.subject:eth0(:[0-9a-f]{8})?$/.test(path)) return false;
  if (path.includes("last_reserved")) return verb === "add";
  return !isUnknown(path, kind);
}

/** Half an id is the id of somebody, as far as anybody can tell who does not know all containers: with them all, a GC can. */
function isUnknown(path: string, kind: string): boolean {
  return kind === "half" && isReservation(path);
}

/** Each file of an attachment damaged before its DEL; and before an ADD that finds it, as after a restart of the machine. */
export function damages(way: Way): readonly Trial[] {
  SITUATIONS.del.prepare(way);
  must(way, "add", SUBJECT);
  const files = ownFiles();
  return (["del", "add"] as const).flatMap((verb) =>
    files.flatMap((file) =>
      Object.keys(KINDS).map((kind) => ({
        name: `${verb} ${file} ${kind}`,
        kind,
        attempt: () => outcomeOf(() => damage(way, verb, file, kind)),
      }))
    )
  );
}

function outcomeOf(call: () => void): Outcome {
  try {
    call();
    return { result: "succeeded" };
  } catch (error) {
    return { result: "FAILED", problem: error instanceof Error ? error.message : String(error) };
  }
}

function damage(way: Way, verb: "del" | "add", path: string, kind: string): void {
  const { prepare, look } = SITUATIONS.del;
  prepare(way);
  plantStrangers();
  const before = look();
  must(way, "add", SUBJECT);
  const damaged = KINDS[kind]!(readFileSync(path));
  if (verb === "add") must(way, "del", SUBJECT);
  // A file of its own: others may be further names of it.
  rmSync(path, { force: true });
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, damaged);
  const { exitCode, stdout, stderr } = way.call(verb, SUBJECT);
  if (exitCode !== 0) throw new Error(`It ended with ${exitCode}: ${stdout}${stderr}`);
  if (isNoticed(verb, path, kind) && !stderr.includes(path)) throw new Error(`It said nothing of "${path}": ${stderr}`);
  if (verb === "add") {
    must(way, "check", SUBJECT);
    must(way, "del", SUBJECT);
  }
  if (isUnknown(path, kind)) must(way, "gc", RESIDENT);
  requireSame("It left", before, look());
  must(way, "add", SUBJECT);
  must(way, "check", SUBJECT);
  must(way, "del", SUBJECT);
  requireSame("A further ADD and DEL left", before, look());
}

/** What belongs to the container, or to all of the network. */
function ownFiles(): string[] {
  return STATE.flatMap((directory) =>
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
function plantStrangers(): void {
  for (const directory of STATE.filter((each) => existsSync(each))) {
    for (const name of ["stranger.txt", ".stranger", "stranger.json"]) {
      writeFileSync(join(directory, name), "no business of yours");
    }
  }
}
