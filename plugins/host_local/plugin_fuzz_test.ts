/**
 * What others may have left among the reservations, called as the plugin is called: whatever it is, the answer is a result or an error
 * object, no address is given twice, and nothing outside of the directory changes.
 */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { lstatSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { currentNetns } from "../../ffi/netns/netns.ts";
import { useDirectory } from "../../testing/directory.ts";
import { checkProperty } from "../../testing/fuzz.ts";
import { PLANTED_KINDS, type PlantedKind, plantPath } from "../../testing/planted_paths.ts";
import hostLocal from "./plugin.ts";
import { newHostContext, newRequest, respond } from "../../testing/plugin_call.ts";

const root = useDirectory("cni-reservations-");
const outside = join(root, "outside");
const dataDir = join(root, "networks");
const network = join(dataDir, "net");

const said: string[] = [];
const context = newHostContext({ host: currentNetns(), log: said });

interface Answer {
  readonly exitCode: number;
  readonly code?: number;
  readonly msg?: string;
  readonly address?: string;
}

function call(command: string, containerId: string): Answer {
  const ipam = { type: "host-local", dataDir, subnet: "10.9.0.0/29" };
  const extra = command === "GC" ? { "cni.dev/valid-attachments": [{ containerID: "keep", ifname: "eth0" }] } : {};
  const request = newRequest("host-local", command, { ipam, ...extra }, { containerId, netns: "/x" });
  const { exitCode, stdout } = respond(hostLocal, request, context);
  const answer = stdout === "" ? {} : JSON.parse(stdout);
  return { exitCode, code: answer.code, msg: answer.msg, address: answer.ips?.[0].address };
}

/** A fresh directory, and beside it what nobody must touch. */
function reset(): void {
  for (const path of [outside, dataDir]) rmSync(path, { recursive: true, force: true });
  mkdirSync(outside);
  mkdirSync(network, { recursive: true });
  writeFileSync(join(outside, "secret"), "c1\r\neth0");
  said.splice(0);
}

/** Everything outside, with its content. */
function outsiders(): readonly string[] {
  return readdirSync(outside).map((name) => `${name} ${readFileSync(join(outside, name), "utf8")}`);
}

/** What is wrong with an answer that only a mistake of ours gives. */
function expectOurs({ exitCode, msg = "" }: Answer): void {
  expect([0, 1]).toContain(exitCode);
  if (exitCode === 1) expect(msg).toMatch(/^(Cannot |Check failed: )/);
}

const NAMES = [
  ...[
    "10.9.0.2",
    "10.9.0.3",
    "10.9.0.4",
    "10.9.0.5",
    "10.9.0.6",
    "10.9.0.1",
    "10.9.0.99",
    "::1",
    "010.9.0.2",
    "10.9.0.02",
  ],
  ...[
    "last_reserved_ip.0",
    "last_reserved_ip.1",
    "last_reserved_ip.x",
    ".c1:eth0",
    ".keep:eth0",
    ".c2:eth0",
    ".:",
    ".x",
    "...",
  ],
  ...[
    ".new.abc.tmp",
    ".status.1.tmp",
    ".last_reserved_ip.0.x.tmp",
    "../.net.index",
    "README",
    "\u{1f600}",
    "x".repeat(200),
  ],
];
const CONTENTS = [
  ...[
    "",
    "c1",
    "c1\r\neth0",
    "c1\neth0",
    "keep\r\neth0",
    "c2\r\neth0\r\n",
    "../../x\r\neth0",
    "c1\r\n../x",
    "\0",
    " ",
    "10.9.0.3",
  ],
  ...[
    "c1\r\neth0\r\nmore",
    "a".repeat(100_000),
    "10.9.0.6",
    "999.9.9.9",
    "host-local index 1 0\nx\n1 1 0 0\n",
    "\ud800",
  ],
];

type Kind = "file" | "directory" | PlantedKind;
interface Foreign {
  readonly name: string;
  readonly kind: Kind;
  readonly content: string;
}
const foreign: fc.Arbitrary<Foreign> = fc.record({
  name: fc.constantFrom(...NAMES),
  kind: fc.oneof(
    { weight: 6, arbitrary: fc.constant<Kind>("file") },
    { weight: 5, arbitrary: fc.constantFrom<Kind>("directory", ...Object.keys(PLANTED_KINDS) as PlantedKind[]) },
  ),
  content: fc.oneof(fc.constantFrom(...CONTENTS), fc.string({ unit: "binary", maxLength: 40 })),
});

const TARGETS = { existing: join(outside, "secret"), absent: join(outside, "made") };

function put({ name, kind, content }: Foreign): Disposable | undefined {
  const path = join(network, name);
  // A socket's path has 107 bytes at most.
  if (lstatSync(path, { throwIfNoEntry: false }) || kind === "a socket" && path.length > 100) return undefined;
  if (kind !== "directory" && kind !== "file") return plantPath(kind, path, TARGETS);
  if (kind === "directory") mkdirSync(path);
  else writeFileSync(path, content);
  return undefined;
}

test("whatever lies among the reservations, every call ends well or with an error of ours, and touches nothing else", () => {
  checkProperty(
    fc.property(fc.array(foreign, { maxLength: 6 }), (plants) => {
      reset();
      const before = outsiders();
      using planted = new DisposableStack();
      for (const each of plants) planted.use(put(each));
      const added = ["c3", "c4"].map((id) => ({ id, ...call("ADD", id) }));
      for (const each of added) expectOurs(each);
      const given = added.flatMap(({ address }) => address ?? []);
      expect(new Set(given).size).toBe(given.length);
      for (const { id, exitCode } of added) if (exitCode === 0) expect(call("CHECK", id).exitCode).toBe(0);
      for (const command of ["STATUS", "CHECK", "DEL", "GC"]) expectOurs(call(command, "c1"));
      for (const { id } of added) expect(call("DEL", id)).toMatchObject({ exitCode: 0 });
      expect(outsiders()).toEqual(before);
    }),
    30,
  );
});

const POINTS = ["10.9.0.2", "last_reserved_ip.0", "lock", ".c1:eth0", "../.net.index"];

test.each(POINTS)("a link in the place of %s is not followed", (name) => {
  for (const kind of ["a link to a file", "a link to nothing", "a link to itself"] as const) {
    reset();
    const before = outsiders();
    put({ name, kind, content: "" });
    expect(call("DEL", "c1").exitCode).toBe(0);
    for (const command of ["ADD", "CHECK", "DEL", "GC"]) expectOurs(call(command, "c1"));
    expect(outsiders()).toEqual(before);
  }
});

test("index files of any content are made anew", () => {
  const index = join(dataDir, ".net.index");
  reset();
  call("ADD", "c1");
  const whole = readFileSync(index);
  checkProperty(
    fc.property(
      fc.array(fc.tuple(fc.nat(whole.length - 1), fc.nat(255)), { minLength: 1, maxLength: 8 }),
      fc.nat(),
      (changes, cut) => {
        reset();
        call("ADD", "c1");
        const bytes = new Uint8Array(readFileSync(index));
        for (const [at, value] of changes) bytes[at % bytes.length] = value;
        writeFileSync(index, cut % 3 === 0 ? bytes.subarray(0, cut % bytes.length) : bytes);
        const { exitCode, address } = call("ADD", "c2");
        expect([exitCode, address]).toEqual([0, "10.9.0.3/29"]);
        for (const id of ["c1", "c2"]) expect(call("CHECK", id).exitCode).toBe(0);
        for (const id of ["c1", "c2"]) expect(call("DEL", id).exitCode).toBe(0);
        expect(readdirSync(network).filter((name) => name.startsWith("10."))).toEqual([]);
      },
    ),
    30,
  );
});
