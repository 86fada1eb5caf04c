/** Files as a power cut, a full disk or somebody's hand leaves them, in every place where state is kept. @module */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { FaultCase, FaultOutcome } from "./experiment.ts";
import { mustSucceed, RESIDENT_CONTAINER, SCENARIOS, TEST_CONTAINER } from "./scenario.ts";
import { runShell } from "../harness/node.ts";
import { requireSameState } from "../harness/node_state.ts";
import type { FaultContainer, Invocation } from "./invocation.ts";

/** What disks and page caches write at a time. */
const BLOCK_BYTES = 4096;
/** Where the second block of a file begins; a file of one block is cut in the middle. */
const secondBlock = ({ length }: Uint8Array): number => Math.min(BLOCK_BYTES, length >> 1);

/** What becomes of a file. */
export const DAMAGE_KINDS: Readonly<Record<string, (content: Uint8Array) => Uint8Array>> = {
  empty: () => new Uint8Array(0),
  half: (content) => content.subarray(0, content.length >> 1),
  zeros: (content) => new Uint8Array(content.length),
  "zeroed-block": (content) => {
    const start = secondBlock(content);
    return content.map((byte, index) => index >= start && index < start + BLOCK_BYTES ? 0 : byte);
  },
  "swapped-blocks": (content) => {
    const [start, end] = [secondBlock(content), Math.min(secondBlock(content) + BLOCK_BYTES, content.length)];
    return Uint8Array.of(...content.subarray(start, end), ...content.subarray(0, start), ...content.subarray(end));
  },
  garbage: () => Uint8Array.from({ length: 300 }, (_, index) => index * 37 % 256),
};

/** A third one, which lives nowhere else. */
const OTHER_CONTAINER: FaultContainer = { id: "other", netns: "/run/netns/other", port: 8002 };

const STATE_DIRECTORIES = [
  "/var/lib/cni/results",
  "/var/lib/cni/networks/faults",
  "/var/lib/cni/networks",
  "/var/lib/cni",
  "/run/cni/tuning",
];
/** Nothing need be said of files that are made anew whenever they do not fit, and of those that a command does not look into. */
function isDetected(verb: DamageVerb, path: string, kind: string): boolean {
  if (/\.index$|lock$|\/\.subject:eth0(:[0-9a-f]{8})?$/.test(path)) return false;
  if (path.includes("last_reserved")) return verb === "add" || verb === "add-other";
  // Of reservations that are damaged in place, the second name tells whose they are.
  if (verb === "gc") return path.startsWith("/var/lib/cni/results/");
  return verb !== "add-other" && !isUndetectable(path, kind);
}

/** A part of an id is the id of somebody, as far as anybody can tell who does not know all containers: with them all, a GC can. */
function isUndetectable(path: string, kind: string): boolean {
  return (kind === "half" || kind === "swapped-blocks") && isReservation(path);
}

/**
 * What is called for the damaged attachment: its DEL, or an ADD that finds the file, as after a restart of the machine. Or else what is
 * called while it lives: the ADD of another container, which must not get its addresses, or a GC that it is no more on the list of.
 */
const DAMAGE_VERBS = ["del", "add", "add-other", "gc"] as const;
type DamageVerb = (typeof DAMAGE_VERBS)[number];

/** Each file of an attachment, damaged before each of these calls. */
export function fileDamageCases(invocation: Invocation): readonly FaultCase[] {
  SCENARIOS.del.prepare(invocation);
  mustSucceed(invocation, "add", TEST_CONTAINER);
  const files = stateFilePaths();
  return DAMAGE_VERBS.flatMap((verb) =>
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

function runWithDamage(invocation: Invocation, verb: DamageVerb, path: string, kind: string): void {
  const { prepare, snapshot } = SCENARIOS.del;
  prepare(invocation);
  addForeignFiles();
  const before = snapshot();
  mustSucceed(invocation, "add", TEST_CONTAINER);
  const damaged = DAMAGE_KINDS[kind]!(readFileSync(path));
  if (verb === "add") mustSucceed(invocation, "del", TEST_CONTAINER);
  // As from somebody's hand, a file of its own, since others may be further names of it; else as a disk damages it, under all its names.
  if (verb === "add" || verb === "del") rmSync(path, { force: true });
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, damaged);
  const stderr = DAMAGED_CALLS[verb](invocation);
  if (isDetected(verb, path, kind) && !stderr.includes(path)) {
    throw new Error(`It said nothing of "${path}": ${stderr}`);
  }
  if (isUndetectable(path, kind)) mustSucceed(invocation, "gc", RESIDENT_CONTAINER);
  mustSucceed(invocation, "check", RESIDENT_CONTAINER);
  requireSameState("It left", before, snapshot());
  mustSucceed(invocation, "add", TEST_CONTAINER);
  mustSucceed(invocation, "check", TEST_CONTAINER);
  mustSucceed(invocation, "del", TEST_CONTAINER);
  requireSameState("A further ADD and DEL left", before, snapshot());
}

/** What is called while a file is damaged, and then to be rid of the container. @returns what the first call printed on stderr */
const DAMAGED_CALLS: Readonly<Record<DamageVerb, (invocation: Invocation) => string>> = {
  del: (invocation) => mustSucceed(invocation, "del", TEST_CONTAINER).stderr,
  add(invocation) {
    const { stderr } = mustSucceed(invocation, "add", TEST_CONTAINER);
    mustSucceed(invocation, "check", TEST_CONTAINER);
    mustSucceed(invocation, "del", TEST_CONTAINER);
    return stderr;
  },
  "add-other"(invocation) {
    runShell("ip netns add other; ip -n other link set lo up");
    const taken = runShell("for n in resident subject; do ip -n $n -o addr show dev eth0; done");
    const { stdout, stderr } = mustSucceed(invocation, "add", OTHER_CONTAINER);
    const given: string[] = JSON.parse(stdout).ips.map(({ address }: { address: string }) => address);
    const shared = given.filter((address) => taken.includes(` ${address} `));
    if (shared.length > 0) throw new Error(`It gave away ${shared.join(", ")}, which a living container has`);
    mustSucceed(invocation, "del", OTHER_CONTAINER);
    mustSucceed(invocation, "del", TEST_CONTAINER);
    return stderr;
  },
  gc(invocation) {
    const { stderr } = mustSucceed(invocation, "gc", RESIDENT_CONTAINER);
    mustSucceed(invocation, "del", TEST_CONTAINER);
    return stderr;
  },
};

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
