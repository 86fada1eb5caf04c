/** Files as a power cut, a full disk or a person leaves them, in every directory of state. @module */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { failedOutcome, type FaultCase, type FaultOutcome } from "./fault_case.ts";
import { attachAndDetach, mustSucceed, RESIDENT_CONTAINER, SCENARIOS, TEST_CONTAINER } from "./scenario.ts";
import type { Caller } from "../harness/invocation.ts";
import { newContainer } from "../harness/networks.ts";
import { addNamespaces } from "../harness/node.ts";
import { requireSameState } from "../harness/node_state.ts";
import { runShell } from "../harness/process.ts";

/** Disks and page caches write so much at a time. */
const BLOCK_BYTES = 4096;
/** Where the second block of a file begins; a file of one block is cut in the middle. */
const secondBlock = ({ length }: Uint8Array): number => Math.min(BLOCK_BYTES, length >> 1);

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

const OTHER_CONTAINER = newContainer("other", 8002);

const STATE_DIRECTORIES = [
  "/var/lib/cni/results",
  "/var/lib/cni/networks/faults",
  "/var/lib/cni/networks",
  "/var/lib/cni",
  "/run/cni/tuning",
];

/** Files that are made anew when they are wrong, and those that a command does not read, need not be named. */
function isDetected(verb: DamageVerb, path: string, kind: string): boolean {
  if (/\.index$|lock$|\/\.subject:eth0(:[0-9a-f]{8})?$/.test(path)) return false;
  if (path.includes("last_reserved")) return verb === "add" || verb === "add-other";
  // Reservations that are damaged in place are attributed by their second name.
  if (verb === "gc") return path.startsWith("/var/lib/cni/results/");
  return verb !== "add-other" && !isUndetectable(path, kind);
}

/** A part of an id could be the id of another container: only a GC, which knows all of them, can tell. */
const isUndetectable = (path: string, kind: string): boolean =>
  (kind === "half" || kind === "swapped-blocks") && isReservation(path);

/** DEL; ADD, as after a restart of the machine; or, while attached, ADD of another container, or a GC that removes the damaged one. */
const DAMAGE_VERBS = ["del", "add", "add-other", "gc"] as const;
type DamageVerb = (typeof DAMAGE_VERBS)[number];

export function fileDamageCases(caller: Caller): readonly FaultCase[] {
  SCENARIOS.del.prepare(caller);
  mustSucceed(caller, "add", TEST_CONTAINER);
  const files = stateFilePaths();
  return DAMAGE_VERBS.flatMap((verb) =>
    files.flatMap((file) =>
      Object.keys(DAMAGE_KINDS).map((kind) => ({
        name: `${verb} ${file} ${kind}`,
        kind,
        run: () => runWithDamage(caller, verb, file, kind),
      }))
    )
  );
}

function runWithDamage(...damage: Parameters<typeof requireRecovery>): FaultOutcome {
  try {
    requireRecovery(...damage);
    return { result: "succeeded" };
  } catch (error) {
    return failedOutcome(error);
  }
}

function requireRecovery(caller: Caller, verb: DamageVerb, path: string, kind: string): void {
  const { prepare, snapshot } = SCENARIOS.del;
  prepare(caller);
  addForeignFiles();
  const before = snapshot();
  mustSucceed(caller, "add", TEST_CONTAINER);
  const damaged = DAMAGE_KINDS[kind]!(readFileSync(path));
  if (verb === "add") mustSucceed(caller, "del", TEST_CONTAINER);
  // As by a person, a new file, since others may be further names of the old one; else as by a disk, under all its names.
  if (verb === "add" || verb === "del") rmSync(path, { force: true });
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, damaged);
  const stderr = callOnDamage(caller, verb);
  if (isDetected(verb, path, kind) && !stderr.includes(path)) {
    throw new Error(`It did not name "${path}": ${stderr}`);
  }
  if (isUndetectable(path, kind)) mustSucceed(caller, "gc", RESIDENT_CONTAINER);
  mustSucceed(caller, "check", RESIDENT_CONTAINER);
  requireSameState("It left", before, snapshot());
  attachAndDetach(caller);
  requireSameState("A further ADD and DEL left", before, snapshot());
}

/** The command, and those that remove the containers then. @returns what the first command printed to stderr */
function callOnDamage(caller: Caller, verb: DamageVerb): string {
  if (verb === "add-other") addNamespaces([OTHER_CONTAINER.id]);
  const attached = runShell("for n in resident subject; do ip -n $n -o addr show dev eth0 2>&1 || :; done");
  const subject =
    { del: TEST_CONTAINER, add: TEST_CONTAINER, "add-other": OTHER_CONTAINER, gc: RESIDENT_CONTAINER }[verb];
  const { stdout, stderr } = mustSucceed(caller, verb === "add-other" ? "add" : verb, subject);
  if (verb === "add") mustSucceed(caller, "check", TEST_CONTAINER);
  if (verb === "add-other") {
    const addresses: string[] = JSON.parse(stdout).ips.map(({ address }: { address: string }) => address);
    const shared = addresses.filter((address) => attached.includes(` ${address} `));
    if (shared.length > 0) throw new Error(`It reserved ${shared.join(", ")}, which another container has`);
    mustSucceed(caller, "del", OTHER_CONTAINER);
  }
  if (verb !== "del") mustSucceed(caller, "del", TEST_CONTAINER);
  return stderr;
}

function stateFilePaths(): string[] {
  return STATE_DIRECTORIES.filter((directory) => existsSync(directory)).flatMap((directory) =>
    readdirSync(directory, { withFileTypes: true }).filter((entry) => entry.isFile())
      .map(({ name }) => join(directory, name)).filter(isOwn).sort()
  );
}

const isOwn = (path: string): boolean =>
  !path.includes("stranger") &&
  (/subject|lock$|last_reserved|index$/.test(path) ||
    isReservation(path) && readFileSync(path, "utf8").startsWith("subject"));

const isReservation = (path: string): boolean => /\/(10|fd00)[.:\d]+$/.test(path);

function addForeignFiles(): void {
  for (const directory of STATE_DIRECTORIES.filter((path) => existsSync(path))) {
    for (const name of ["stranger.txt", ".stranger", "stranger.json"]) writeFileSync(join(directory, name), "not ours");
  }
}
