/**
 * Damaged documents: those of the specification, of this program's state and of engines, with parts of the text or of the tree replaced.
 *
 * @module
 */
import fc from "fast-check";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const TESTDATA = join(import.meta.dir, "../testdata/spec");

/** Every object in the examples of the specification, and a list as engines write it. */
const EXAMPLE_DOCUMENTS: readonly object[] = [
  ...["0.3.1", "0.4.0", "1.1.0", "examples"].flatMap((name) =>
    objectsIn(JSON.parse(readFileSync(join(TESTDATA, `${name}.json`), "utf8")))
  ).filter((document) => JSON.stringify(document).length < 3000),
  {
    cniVersion: "1.0.0",
    name: "web",
    cniVersions: ["0.4.0", "1.1.0"],
    disableCheck: "true",
    plugins: [
      {
        type: "bridge",
        bridge: "cni0",
        mtu: 1400,
        ipam: {
          type: "host-local",
          ranges: [[{ subnet: "10.1.0.0/16", gateway: "10.1.0.1" }]],
          routes: [{ dst: "::/0" }],
        },
        capabilities: { ips: true },
        dns: { nameservers: ["10.1.0.1"], search: ["x"] },
        args: { cni: { ips: ["10.1.0.5"] } },
      },
      { type: "portmap", capabilities: { portMappings: true }, runtimeConfig: { portMappings: [{ hostPort: 80 }] } },
    ],
  },
  {
    cniVersion: "1.1.0",
    name: "web",
    type: "bridge",
    prevResult: {
      cniVersion: "1.1.0",
      interfaces: [{ name: "eth0", mac: "0a:58:0a:01:00:02", sandbox: "/run/netns/x", mtu: 1500 }],
      ips: [{ address: "10.1.0.5/16", gateway: "10.1.0.1", interface: 0 }],
      routes: [{ dst: "0.0.0.0/0", gw: "10.1.0.1", mtu: 1400, table: 100, scope: 0 }],
      dns: {},
    },
    "cni.dev/valid-attachments": [{ containerID: "c1", ifname: "eth0" }],
  },
  { ip4: { ip: "10.1.0.5/16", gateway: "10.1.0.1", routes: [{ dst: "0.0.0.0/0" }] }, dns: { domain: "x" } },
];

function objectsIn(node: unknown): object[] {
  if (typeof node !== "object" || node === null) return [];
  return [...Array.isArray(node) ? [] : [node], ...Object.values(node).flatMap(objectsIn)];
}

/** Every place in a tree, as the keys that lead there. */
export function placesIn(node: unknown, path: readonly string[] = []): (readonly string[])[] {
  if (typeof node !== "object" || node === null) return [path];
  return [path, ...Object.entries(node).flatMap(([key, value]) => placesIn(value, [...path, key]))];
}

/** The tree with another value at a place; unchanged where the place is no more. */
export function replaceAt(node: unknown, [key, ...rest]: readonly string[], value: unknown): unknown {
  if (key === undefined) return value;
  if (typeof node !== "object" || node === null) return node;
  const copy = structuredClone(node) as Record<string, unknown>;
  Object.defineProperty(copy, key, {
    value: replaceAt(copy[key], rest, value),
    configurable: true,
    enumerable: true,
    writable: true,
  });
  return copy;
}

const UNEXPECTED_NUMBERS = [0, -0, -1, 0.5, 4095, 4096, 65536, 2 ** 32, 2 ** 53, 1e300];
const UNEXPECTED_WORDS = "a/b / . .. ../x __proto__ constructor toString 1.1.0 0.2.0 9.9.9 1.1 -1 %s%n".split(" ");
const UNEXPECTED_TEXTS = ["", " ", "\0", "\ud800", "\u{10ffff}", "x".repeat(300)];
const UNEXPECTED_ADDRESSES = "10.0.0.1 10.0.0.1/33 ::/0 ::ffff:10.0.0.1/96 fe80::1%eth0 0a:58:0a:01:00:02".split(" ");
const UNEXPECTED_VALUES: readonly unknown[] = [
  null,
  true,
  false,
  ...UNEXPECTED_NUMBERS,
  ...UNEXPECTED_WORDS,
  ...UNEXPECTED_TEXTS,
  ...UNEXPECTED_ADDRESSES,
  [],
  [[]],
  [null],
  {},
  { "": {} },
  { type: "x" },
  Array(300).fill(0),
  JSON.parse('{"__proto__": {"type": 1}}'),
];
const KEYS = [
  "__proto__",
  "constructor",
  "NAME",
  "Type",
  "type",
  "name",
  "cniVersion",
  "ipam",
  "prevResult",
  "plugins",
  "",
];

const unexpectedValue: fc.Arbitrary<unknown> = fc.oneof(
  fc.constantFrom(...UNEXPECTED_VALUES),
  fc.jsonValue({ maxDepth: 3 }),
);

/** One of `documents`, of which up to `most` places are something else, or new. */
const damagedOf = (documents: readonly object[], most: number): fc.Arbitrary<unknown> =>
  fc.tuple(
    fc.constantFrom(...documents),
    fc.array(fc.tuple(fc.nat(), fc.option(fc.constantFrom(...KEYS)), unexpectedValue), { maxLength: most }),
  ).map(([document, changes]) =>
    changes.reduce<unknown>((node, [place, key, value]) => {
      const places = placesIn(node);
      const path = places[place % places.length]!;
      return replaceAt(node, key === null ? path : [...path, key], value);
    }, document)
    // Values that no text can say, such as an array with keys, are dropped.
  ).map((node) => JSON.parse(JSON.stringify(node)) as unknown);

/** A document of which up to three places are something else, or new. */
export const damagedDocument: fc.Arbitrary<unknown> = damagedOf(EXAMPLE_DOCUMENTS, 3);

const MARKS = ["{", "}", "[", "]", ",", ":", '"', "\\", "\\u", "\\ud800", "//", "/*", "*/", "/", "#", "<!--", ",,"];
const BLANKS = ["\n", "\r\n", " ", "\t", "\0", "\ufeff", "\u00a0", "\u0085", "\ud800"];
const VALUES = ["null", "true", "NaN", "-", "-0", "1e999", "1E-400", "0x1", "01", ".5", "1.", "9".repeat(40), "'x'"];
const MEMBERS = ['"__proto__":', '"name":', '"a":1,', "x:", '"\u2028"'];
/** Pieces of JSON, and text that looks like it. */
const TOKENS = [...MARKS, ...BLANKS, ...VALUES, ...MEMBERS];

type Edit = readonly [at: number, remove: number, token: string];
const edits: fc.Arbitrary<readonly Edit[]> = fc.array(
  fc.tuple(fc.nat(), fc.nat(8), fc.oneof(fc.constantFrom(...TOKENS), fc.string({ maxLength: 4 }))),
  { maxLength: 4 },
);

/** The text of a damaged document, itself damaged, with or without white space. */
export const documentText: fc.Arbitrary<string> = fc.tuple(damagedDocument, fc.constantFrom(0, 2), edits).map(
  ([document, indent, list]) =>
    list.reduce((text, [at, remove, token]) => {
      const from = at % (text.length + 1);
      return text.slice(0, from) + token + text.slice(from + remove);
    }, JSON.stringify(document, null, indent) ?? ""),
);

/**
 * Every second time one of the documents that `isMeant`, with at most one place that is something else: of what is damaged more, hardly
 * anything is accepted, and of what is not accepted a property has nothing to say. Else a {@linkcode documentText}.
 */
export const documentTextOf = (isMeant: (document: object) => boolean): fc.Arbitrary<string> =>
  fc.oneof(damagedOf(EXAMPLE_DOCUMENTS.filter(isMeant), 1).map((document) => JSON.stringify(document)), documentText);

/** Long texts in which something is repeated: what takes the square of the time, or a level of the stack for each. */
export const repetition: fc.Arbitrary<string> = fc.tuple(
  fc.array(fc.constantFrom(...TOKENS), { maxLength: 3 }),
  fc.array(fc.constantFrom(...TOKENS), { minLength: 1, maxLength: 3 }),
  fc.array(fc.constantFrom(...TOKENS), { maxLength: 3 }),
).map(([before, unit, after]) => before.join("") + unit.join("").repeat(20_000) + after.join(""));
