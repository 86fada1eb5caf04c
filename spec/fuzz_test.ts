/** Configurations, results, CNI_ARGS and names of any content: a value that keeps its promises, or one of our errors, and soon. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { resolve } from "node:path";
import { checkProperty, outcomeOf, processorMs } from "../testing/fuzz.ts";
import { parsePluginConfig } from "./plugin_config.ts";
import {
  containerIdProblem,
  ifnameProblem,
  networkNameProblem,
  parseArgs,
  parseEnvironment,
  parsePairs,
} from "./env.ts";
import { CniError } from "./error.ts";
import { locate, parseJson, stringifyJson } from "./jsonc.ts";
import { deriveRequest, parseNetworkConfigList } from "./network_config_list.ts";
import { parseResult, stringifyResult } from "./result.ts";
import { damagedDocument, documentText, documentTextOf, repetition } from "../testing/fuzz_documents.ts";
import { type CniCommand, VERSIONS } from "./version.ts";

const verb = fc.constantFrom<CniCommand>("ADD", "DEL", "CHECK", "GC", "STATUS");

/** What is told of an error fits on a screen, and is one of the specification's or the ecosystem's codes. */
function expectBearable(error: Error): void {
  const document = CniError.from(error).toJSON("1.1.0");
  expect(JSON.stringify(document).length).toBeLessThan(2000);
  expect([1, 2, 4, 6, 7, 999]).toContain(document.code);
}

/** The outcome of a call, of whose error no more is asked. */
function valueOf<T>(call: () => T): T | undefined {
  const outcome = outcomeOf(call);
  if ("value" in outcome) return outcome.value;
  expectBearable(outcome.error);
  return undefined;
}

/** How many of the values that were tried were accepted: a property that says something of those alone must not become empty. */
class Share {
  #tried = 0;
  #accepted = 0;

  count(isAccepted: boolean): void {
    this.#tried++;
    if (isAccepted) this.#accepted++;
  }

  expectAtLeast(part: number): void {
    expect(this.#accepted / this.#tried).toBeGreaterThanOrEqual(part);
  }
}

const isRequest = (document: object): boolean => "name" in document && "type" in document;
const isNetwork = (document: object): boolean => isRequest(document) || "plugins" in document;

const isName = (text: string): boolean => /^[a-zA-Z0-9][\w.-]*$/.test(text);

test("JSON of any text is a value that is printed and read again as the same, or an error with a position", () => {
  checkProperty(
    fc.property(fc.oneof(documentText, fc.string({ unit: "binary" })), (text) => {
      const node = valueOf(() => parseJson(text, "x"));
      if (node !== undefined) expect(stringifyJson(parseJson(stringifyJson(node)))).toBe(stringifyJson(node));
      for (const path of ["plugins[0].ipam", '["\\u0000"]', "[", "a..b[99999999999]"]) {
        outcomeOf(() => locate(text, path));
      }
    }),
    700,
  );
});

test("a request of any text has a name that is one, and a type", () => {
  const share = new Share();
  checkProperty(
    fc.property(documentTextOf(isRequest), verb, (text, verb) => {
      const config = valueOf(() => parsePluginConfig(text, verb));
      share.count(config !== undefined);
      if (!config) return;
      expect(isName(config.name)).toBe(true);
      expect(VERSIONS).toContain(config.cniVersion);
      expect(config.ipamType ?? "x").not.toMatch(/[/\0]|^\.{0,2}$/);
      if (config.prevResult) {
        for (const version of VERSIONS) valueOf(() => stringifyResult(config.prevResult!, version));
      }
      expect(Object.getPrototypeOf({})).toBe(Object.prototype);
    }),
    500,
  );
  share.expectAtLeast(0.2);
});

test("a network of any text has plugins that are called by a name, with requests that are read again", () => {
  const lists = new Share();
  const requests = new Share();
  checkProperty(
    fc.property(documentTextOf(isNetwork), verb, (text, verb) => {
      const list = valueOf(() => parseNetworkConfigList(text, "x.conflist"));
      lists.count((list?.plugins.length ?? 0) > 0);
      for (const plugin of list?.plugins ?? []) {
        expect(isName(list!.name)).toBe(true);
        expect(plugin.type).not.toMatch(/[/\0]|^\.{0,2}$/);
        const request = valueOf(() => deriveRequest(list!, plugin, { command: verb, capabilityArgs: { ips: [] } }));
        const config = request === undefined ? undefined : valueOf(() => parsePluginConfig(request, verb));
        requests.count(config !== undefined);
      }
    }),
    500,
  );
  lists.expectAtLeast(0.3);
  requests.expectAtLeast(0.4);
});

test("a result of any content is printed in every version, or the error says why not", () => {
  checkProperty(
    fc.property(damagedDocument, fc.constantFrom(...VERSIONS), (node, version) => {
      const result = valueOf(() => parseResult(node, version));
      if (!result) return;
      for (const each of VERSIONS) {
        const printed = valueOf(() => stringifyResult(result, each));
        if (printed !== undefined) valueOf(() => parseResult(JSON.parse(printed), each));
      }
    }),
    1000,
  );
});

// Other texts of this length take some milliseconds.
test("long texts in which something is repeated are read in bounded time", () => {
  checkProperty(
    fc.property(repetition, (text) => {
      const started = processorMs();
      valueOf(() => parseNetworkConfigList(text, "x"));
      valueOf(() => parseArgs(text, ["IP"]));
      valueOf(() => containerIdProblem(text) ?? ifnameProblem(text));
      expect(processorMs() - started).toBeLessThan(1500);
    }),
    12,
  );
});

const word = fc.oneof(
  fc.constantFrom(
    "IP",
    "MAC",
    "IgnoreUnknown",
    "K8S_POD_NAME",
    "=",
    ";",
    ";;",
    "==",
    "true",
    "1",
    "0",
    "\0",
    "\n",
    "",
    "__proto__",
  ),
  fc.string({ maxLength: 5 }),
  fc.string({ unit: "binary", maxLength: 5 }),
);
const argsText = fc.array(word, { maxLength: 9 }).map((words) => words.join(""));

test("CNI_ARGS of any text give declared keys with values, or an error", () => {
  checkProperty(
    fc.property(argsText, (text) => {
      const args = valueOf(() => parseArgs(text, ["IP", "MAC"]));
      for (const [key, value] of Object.entries(args ?? {})) {
        expect(["IP", "MAC"]).toContain(key);
        expect(value).not.toMatch(/^$|[=;]/);
      }
      for (const pair of parsePairs(text)) expect(text).toContain(pair.join("="));
    }),
    2000,
  );
});

const PIECES = [
  "/",
  "..",
  ".",
  "\\",
  "%2f",
  "\0",
  " ",
  "\n",
  ":",
  ";",
  "=",
  "-",
  "_",
  "\u00e9",
  "\u2044",
  "\uff0e",
  "\ud800",
  "c1",
];
const name = fc.array(fc.oneof(fc.constantFrom(...PIECES), fc.string({ maxLength: 4, unit: "binary" })), {
  maxLength: 5,
})
  .map((parts) => parts.join(""));

test("names that are accepted lead nowhere as parts of a path, and stay one word", () => {
  checkProperty(
    fc.property(name, name, (id, ifname) => {
      const environment = valueOf(() =>
        parseEnvironment({ CNI_COMMAND: "ADD", CNI_CONTAINERID: id, CNI_IFNAME: ifname, CNI_NETNS: "/x" })
      );
      expect(environment !== undefined).toBe(!containerIdProblem(id) && !ifnameProblem(ifname));
      expect(containerIdProblem(id)).toBe(networkNameProblem(id));
      for (const part of [containerIdProblem(id) ? "x" : id, ifnameProblem(ifname) ? "x" : ifname]) {
        expect(resolve("/a/b", part)).toStartWith("/a/b/");
        expect(part).not.toMatch(/[/\0\s]/);
        expect(["", ".", ".."]).not.toContain(part);
      }
    }),
    1500,
  );
});
