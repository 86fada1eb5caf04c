import { expect, test } from "bun:test";
import { circleProblems, fileProblems, importsOf, LAYERS } from "./layers.ts";

test("importsOf() finds every form with its line", () => {
  const source = [
    '/** Text that says import { a } from "./no.ts" and import("./no.ts"). */',
    'import { a, type B } from "./static.ts";',
    "import type {",
    "  C,",
    '} from "./type.ts";',
    'import "./effect.ts";',
    'export * from "./star.ts";',
    'export type { D } from "./again.ts";',
    '// import("./comment.ts")',
    'const e = await import("./lazy.ts");',
    "const f = await import(name);",
    'const g = require("package/file.js");',
    'throw new Error(`Cannot read from "x"`);',
  ].join("\n");
  expect(importsOf(source)).toEqual([
    { line: 2, specifier: "./static.ts" },
    { line: 3, specifier: "./type.ts" },
    { line: 6, specifier: "./effect.ts" },
    { line: 7, specifier: "./star.ts" },
    { line: 8, specifier: "./again.ts" },
    { line: 10, specifier: "./lazy.ts" },
    { line: 11, specifier: "" },
    { line: 12, specifier: "package/file.js" },
  ]);
});

const ALLOWED: readonly (readonly [string, string])[] = [
  ["ffi/sys/libc.ts", 'import { dlopen } from "bun:ffi";'],
  ["ffi/netlink/socket.ts", 'import { socket } from "../sys/libc.ts";'],
  ["ffi/route/link.ts", 'import { table } from "./uapi.ts";'],
  ["ffi/netns/netns.ts", "libc.setns(fd, 0);"],
  ["ffi/route/link.ts", "// Here setns would be wrong."],
  ["ffi/route/address.ts", 'import { parseIp } from "../address.ts";'],
  ["spec/jsonc.ts", 'return require("jsonc-parser/lib/esm/main.js");'],
  ["plugins/bridge/plugin.ts", 'import { vlan } from "./vlan.ts";'],
  ["plugins/bridge/vlan.ts", 'import { serve } from "../lib/protocol/serve.ts";'],
  ["plugins/bridge/docs.ts", 'import { routeDocs } from "../lib/docs/route_docs.ts";'],
  ["plugins/docs_registry.ts", 'import docs from "./bridge/docs.ts";'],
  ["plugins/docs_registry.ts", 'import { pluginNames } from "./registry.ts";'],
  ["plugins/registry.ts", 'import bridge from "./bridge/plugin.ts";'],
  ["plugins/registry.ts", 'import type { Plugin } from "./lib/protocol/plugin.ts";'],
  ["cmd/cni.ts", 'import { registry } from "../plugins/registry.ts";'],
  ["cmd/cni.ts", 'import { Runtime } from "../runtime/runtime.ts";'],
  ["cmd/cni.ts", 'import type { RuntimeConf } from "../runtime/resolve_attachment.ts";'],
  ["runtime/add.ts", 'import { registry } from "../plugins/registry.ts";'],
  ["runtime/cache_test.ts", 'import { mkdtempSync } from "node:fs";'],
  ["plugins/bridge/plugin_test.ts", 'import { vlan } from "./vlan.ts";'],
  ["plugins/bridge/plugin_test.ts", 'import { findPlugin } from "../registry.ts";'],
  ["plugins/bridge/plugin_test.ts", 'import { inetTable } from "../lib/ruleset/inet_table.ts";'],
  ["plugins/bridge/fixture.ts", 'import { sandbox } from "../../testing/sandbox.ts";'],
  ["testing/portmap.ts", 'import portmap from "../plugins/portmap/plugin.ts";'],
  ["plugins/lib/veth/masquerade.ts", 'import { gcReferenceMasquerade } from "../compat/masquerade.ts";'],
  ["plugins/lib/compat/reference_rules.ts", 'import { retryOnConflict } from "../ruleset/retry.ts";'],
  ["scripts/anything.ts", 'import { registry } from "../plugins/registry.ts";'],
];

test.each(ALLOWED.map(([path, source]) => ({ path, source })))("$path may: $source", ({ path, source }) => {
  expect(fileProblems(path, source)).toEqual([]);
});

const REFUSED: readonly (readonly [string, string, string])[] = [
  ["ffi/netlink/socket.ts", 'import { dlopen } from "bun:ffi";', "only ffi/sys/libc.ts may"],
  ["ffi/sys/file.ts", 'import { message } from "../netlink/message.ts";', "ffi/sys/ may import ffi/*.ts"],
  ["ffi/route/link.ts", 'import { rule } from "../nft/rule.ts";', "ffi/route/ may import"],
  ["ffi/route/link.ts", "libc.setns(fd, 0);", "only ffi/netns/ may"],
  ["ffi/route/link.ts", 'import { test } from "bun:test";', "may import no package"],
  ["plugins/lib/protocol/serve.ts", 'import { netnsTest } from "../../../testing/netns.ts";', "only tests may"],
  ["spec/error.ts", 'import type { SystemError } from "../ffi/sys/error.ts";', "spec/ may import ffi/*.ts"],
  ["spec/error.ts", 'import { openSync } from "node:fs";', "cost start-up time"],
  ["plugins/bridge/plugin.ts", 'import docs from "./docs.ts";', "plugins/*/ may import"],
  ["plugins/bridge/plugin.ts", 'import { routeDocs } from "../lib/docs/route_docs.ts";', "plugins/*/ may import"],
  ["plugins/bridge/docs.ts", 'import { vlan } from "./vlan.ts";', "plugins/*/docs.ts may import plugins/lib/docs/"],
  [
    "plugins/lib/protocol/serve.ts",
    'import { bridge } from "../../bridge/plugin.ts";',
    "plugins/lib/protocol/ may import",
  ],
  [
    "plugins/lib/protocol/serve.ts",
    'import { addressClaim } from "../links/address_claim.ts";',
    "plugins/lib/protocol/ may import",
  ],
  [
    "plugins/lib/compat/masquerade.ts",
    'import { addMasquerade } from "../veth/masquerade.ts";',
    "plugins/lib/compat/ may import",
  ],
  [
    "plugins/lib/ruleset/elements.ts",
    'import { gcReferenceMasquerade } from "../compat/masquerade.ts";',
    "plugins/lib/ruleset/ may import",
  ],
  [
    "plugins/lib/links/container_link.ts",
    'import type { Table } from "../ruleset/table.ts";',
    "plugins/lib/links/ may import",
  ],
  ["plugins/lib/other/file.ts", "export {};", "belongs to no layer"],
  ["plugins/bridge/plugin_test.ts", 'import ptp from "../ptp/plugin.ts";', "a file of another plugin"],
  ["plugins/bridge/plugin_vm_test.ts", 'import type { A } from "../ptp/config.ts";', "a file of another plugin"],
  ["plugins/bridge/fixture.ts", 'import { ptpFixture } from "../ptp/fixture.ts";', "a file of another plugin"],
  ["plugins/bridge/plugin.ts", 'import { bridgeFixture } from "./fixture.ts";', "only tests may"],
  ["plugins/bridge/plugin.ts", 'import { allocate } from "../host_local/plugin.ts";', "plugins/*/ may import"],
  ["plugins/bridge/plugin.ts", 'import { registry } from "../registry.ts";', "plugins/*/ may import"],
  ["plugins/bridge/plugin.ts", 'import { cut } from "../bridges/cut.ts";', "plugins/*/ may import"],
  ["plugins/registry.ts", 'const load = () => import("../cmd/cni.ts");', 'imports "cmd/cni.ts"'],
  ["plugins/bridge/plugin.ts", 'import { add } from "../../runtime/add.ts";', "plugins/*/ may import"],
  ["runtime/add.ts", 'import { bridge } from "../plugins/bridge/plugin.ts";', "runtime/ may import"],
  ["runtime/add.ts", 'import { usage } from "../cmd/usage.ts";', "runtime/ may import"],
  ["networks/lint/lint.ts", 'import { findNetwork } from "../find.ts";', "networks/lint/ may import"],
  ["ffi/other.ts", 'import { openFile } from "./sys/file.ts";', "ffi/*.ts may import nothing"],
  ["ffi/other/file.ts", "export {};", "belongs to no layer"],
  ["runtime/add.ts", 'import docs from "../plugins/bridge/docs.ts";', "runtime/ may import"],
  // A new folder is part of the product until it is said to be for tests.
  ["unknown/routes.ts", "export {};", "belongs to no layer"],
  ["plugins/bridge/plugin.ts", "const load = () => import(name);", "write the path as a string"],
  ["scripts/long.ts", "\n".repeat(501), "501 lines"],
];

test.each(REFUSED.map(([path, source, text]) => ({ path, source, text })))(
  "$path must not: $source",
  ({ path, source, text }) => {
    const [problem, ...more] = fileProblems(path, source);
    expect(problem).toStartWith(`${path}:`);
    expect(problem).toContain(text);
    expect(more).toEqual([]);
  },
);

test("circleProblems() reports each circle once, of types and of tests as well", () => {
  const sources = new Map([
    ["ffi/a.ts", 'import { b } from "./b.ts";'],
    ["ffi/b.ts", 'import type { C } from "./c.ts";\nimport { leaf } from "./leaf.ts";'],
    ["ffi/c.ts", 'export type { A } from "./a.ts";'],
    ["ffi/leaf.ts", 'import { Missing } from "./not_listed.ts";'],
    ["ffi/top.ts", 'import { a } from "./a.ts";\nimport { leaf } from "./leaf.ts";'],
    ["testing/self.ts", '/** import("./top.ts") */\nconst load = () => import("./self.ts");'],
  ]);
  expect(circleProblems(sources)).toEqual([
    "ffi/a.ts:1: import circle: ffi/a.ts -> ffi/b.ts -> ffi/c.ts -> ffi/a.ts",
    "testing/self.ts:1: import circle: testing/self.ts -> testing/self.ts",
  ]);
});

test("the rows of LAYERS are folders or kinds of files, and point one way: each names rows above it", () => {
  const paths = LAYERS.map(({ path }) => path);
  for (const [row, { path, imports }] of LAYERS.entries()) {
    expect(path).toMatch(/\/$|\*/);
    for (const target of imports) expect(paths.indexOf(target), `${path} -> ${target}`).toBeWithin(0, row);
  }
});
