/** Checks that imports point down the layers and only one file reaches the kernel. Tests may import all but other plugins' files. @module */
import { join } from "node:path";
import { isForTests, isProductSource } from "../repository.ts";

interface Layer {
  /** A folder ending in `/`, or files of one kind. `*` is one name: `ffi/*.ts` has no file of a folder in `ffi/`. */
  readonly path: string;
  /** These are paths of other rows. */
  readonly imports: readonly string[];
  /** npm packages; every one costs start-up time in each call of a plugin. */
  readonly packages?: readonly string[];
}

/** Addresses: pure values that every other row names. */
const VALUES = "ffi/*.ts";
const SYS = [VALUES, "ffi/sys/"];
const KERNEL = [...SYS, "ffi/netlink/"];
const FAMILIES = ["ffi/route/", "ffi/nft/", "ffi/conntrack/", "ffi/diag/"];
const FFI = [...KERNEL, ...FAMILIES, "ffi/dbus/", "ffi/packet/", "ffi/netns/"];

/** The interfaces by which plugins tell tools what they make. */
const MODEL = "plugins/lib/model/";
const PROTOCOL = "plugins/lib/protocol/";
/** What every other part of `plugins/lib/` may import. */
const PLUGIN_BASE = [...FFI, "spec/", MODEL, PROTOCOL];
const PLUGIN_LIB = [
  ...PLUGIN_BASE,
  "plugins/lib/ruleset/",
  "plugins/lib/links/",
  "plugins/lib/compat/",
  "plugins/lib/veth/",
  "plugins/lib/policy/",
];

const PLUGIN = "plugins/*/";
/** No call of a plugin loads these. */
const PLUGIN_DOCS = "plugins/*/docs.ts";
const REGISTRIES = "plugins/*.ts";

/** What is made of plugins. It knows their models, and none of them by name. */
const TOOL = [...PLUGIN_LIB, REGISTRIES, "runtime/"];

/** The layers, lowest first: each row names rows above it only. This is the one place that says which import is allowed. */
export const LAYERS: readonly Layer[] = [
  { path: VALUES, imports: [] },
  { path: "ffi/sys/", imports: [VALUES] },
  { path: "ffi/netlink/", imports: SYS },
  { path: "ffi/route/", imports: KERNEL },
  { path: "ffi/nft/", imports: KERNEL },
  { path: "ffi/conntrack/", imports: KERNEL },
  { path: "ffi/diag/", imports: KERNEL },
  { path: "ffi/dbus/", imports: SYS },
  { path: "ffi/packet/", imports: SYS },
  { path: "ffi/netns/", imports: [...KERNEL, ...FAMILIES] },
  { path: "spec/", imports: [VALUES], packages: ["jsonc-parser"] },
  { path: MODEL, imports: [...FFI, "spec/"] },
  { path: PROTOCOL, imports: [...FFI, "spec/", MODEL] },
  { path: "plugins/lib/ruleset/", imports: PLUGIN_BASE },
  { path: "plugins/lib/links/", imports: PLUGIN_BASE },
  { path: "plugins/lib/compat/", imports: [...PLUGIN_BASE, "plugins/lib/ruleset/"] },
  {
    path: "plugins/lib/veth/",
    imports: [...PLUGIN_BASE, "plugins/lib/ruleset/", "plugins/lib/links/", "plugins/lib/compat/"],
  },
  {
    path: "plugins/lib/policy/",
    imports: [...PLUGIN_BASE, "plugins/lib/ruleset/", "plugins/lib/links/"],
  },
  { path: "plugins/lib/docs/", imports: ["spec/"] },
  { path: PLUGIN_DOCS, imports: ["plugins/lib/docs/"] },
  { path: PLUGIN, imports: PLUGIN_LIB },
  { path: REGISTRIES, imports: ["spec/", MODEL, PROTOCOL, "plugins/lib/docs/", PLUGIN_DOCS, PLUGIN] },
  { path: "program/", imports: ["ffi/sys/"] },
  { path: "runtime/", imports: [...PLUGIN_LIB, REGISTRIES] },
  // Part of the library, without the rest of its folder.
  { path: "networks/lint/", imports: [...TOOL, "plugins/lib/docs/"] },
  { path: "containers/", imports: [...PLUGIN_LIB, "runtime/"] },
  { path: "networks/", imports: [...TOOL, "plugins/lib/docs/", "networks/lint/", "containers/"] },
  { path: "cluster/", imports: [...TOOL, "networks/lint/", "networks/"], packages: ["bun", "bun:jsc"] },
  { path: "policy/", imports: [...TOOL, "cluster/"], packages: ["bun"] },
  { path: "inspect/", imports: [...TOOL, "containers/", "networks/lint/", "networks/", "cluster/", "policy/"] },
  { path: "heal/", imports: [...TOOL, "inspect/"] },
  {
    path: "server/",
    imports: [...TOOL, "program/", "networks/", "heal/", "cluster/", "policy/"],
    packages: ["bun", "prom-client"],
  },
  {
    path: "cmd/",
    imports: [
      ...TOOL,
      "plugins/lib/docs/",
      "program/",
      "containers/",
      "networks/lint/",
      "networks/",
      "inspect/",
      "heal/",
      "cluster/",
      "policy/",
      "server/",
    ],
    packages: ["bun"],
  },
];

/** Only this file may reach native code: every other module gets typed wrappers with checked arguments. */
const NATIVE = "ffi/sys/libc.ts";

/** Only its files may change the namespace of the thread; everything else goes through a handle that goes back. */
const NAMESPACES = "ffi/netns/";
const MAX_LINES = 500;

export interface Import {
  readonly line: number;
  readonly specifier: string;
}

export const importProblems = (sources: ReadonlyMap<string, string>): readonly string[] => [
  ...[...sources].flatMap(([path, source]) => fileProblems(path, source)),
  ...circleProblems(sources),
];

/** Files that import each other, directly or through others; imports of types count: the files cannot be read one by one. */
export function circleProblems(sources: ReadonlyMap<string, string>): readonly string[] {
  const imports = new Map([...sources].map(([path, source]) => [path, importedFiles(path, source, sources)]));
  const problems: string[] = [];
  const finished = new Set<string>();
  const visit = (path: string, trail: readonly string[]) => {
    const start = trail.indexOf(path);
    if (start >= 0) problems.push(`${path}:1: import circle: ${[...trail.slice(start), path].join(" -> ")}`);
    if (start >= 0 || finished.has(path)) return;
    for (const target of imports.get(path) ?? []) visit(target, [...trail, path]);
    finished.add(path);
  };
  for (const path of sources.keys()) visit(path, []);
  return problems;
}

function importedFiles(path: string, source: string, sources: ReadonlyMap<string, string>): ReadonlySet<string> {
  const targets = importsOf(source).filter(({ specifier }) => specifier.startsWith("."))
    .map(({ specifier }) => join(path, "..", specifier));
  return new Set(targets.filter((target) => sources.has(target)));
}

export function fileProblems(path: string, source: string): readonly string[] {
  const lines = source.split("\n");
  const place = placeOf(path);
  const isProduct = isProductSource(path);
  const imports = importsOf(source).flatMap((found) => {
    const problem = isProduct ? place && importProblem(path, place, found) : otherPluginProblem(path, place, found);
    return problem ? [`${path}:${found.line}: ${problem}`] : [];
  });
  const tooLong = `${path}:${MAX_LINES + 1}: file has ${lines.length - 1} lines: split it, ${MAX_LINES} is the limit`;
  const noLayer = `${path}:1: file belongs to no layer: add it to LAYERS in scripts/src/check/layers.ts`;
  return [
    ...lines.length - 1 > MAX_LINES ? [tooLong] : [],
    ...isProduct && !place ? [noLayer] : [],
    ...imports,
    ...isProduct && path !== NATIVE && !path.startsWith(NAMESPACES) ? namespaceProblems(path, lines) : [],
  ];
}

/** A plugin's tests and fixture get other plugins from the registry, as a caller does. */
function otherPluginProblem(path: string, place: Place | undefined, { specifier }: Import): string | undefined {
  const target = join(path, "..", specifier);
  const targetPlace = specifier.startsWith(".") ? placeOf(target) : undefined;
  if (place?.layer.path !== PLUGIN || targetPlace?.layer.path !== PLUGIN || targetPlace.folder === place.folder) {
    return undefined;
  }
  return `imports "${target}": a file of another plugin, take the plugin from plugins/registry.ts`;
}

interface Place {
  readonly layer: Layer;
  /** The folder that the row is for this file, such as `plugins/bridge/`. */
  readonly folder: string;
}

const PATTERNS = LAYERS.map((layer) => {
  const path = layer.path.replaceAll(".", "\\.").replace("*", "(?!lib/)[^/]+");
  return { layer, pattern: new RegExp(`^${path}${path.endsWith("/") ? "" : "$"}`) };
});

/** The row that says most of the file's path. */
function placeOf(path: string): Place | undefined {
  const matches = PATTERNS.map(({ layer, pattern }) => ({ layer, matched: pattern.exec(path)?.[0] ?? "" }));
  const best = matches.reduce((a, b) => b.matched.length > a.matched.length ? b : a);
  if (best.matched === "") return undefined;
  return { layer: best.layer, folder: best.matched.slice(0, best.matched.lastIndexOf("/") + 1) };
}

export const lineAt = (source: string, index: number): number => source.slice(0, index).split("\n").length;

/**
 * Finds every import in a formatted source: static ones start a line, others may stand anywhere. `require()`, which
 * loads when it is called, counts as `import()`.
 */
export function importsOf(source: string): readonly Import[] {
  const patterns = [
    /^(?:import|export)\s+(?:type\b)?[\w\s{},*$]*?\bfrom\s+"([^"]+)"/gm,
    /^import\s+"([^"]+)"/gm,
    /^(?!\s*(?:\*|\/[/*])).*?\b(?:import|require)\(\s*(?:"([^"]*)")?/gm,
  ];
  const found = patterns.flatMap((pattern) =>
    [...source.matchAll(pattern)].map(({ index, 1: specifier = "" }) => ({ line: lineAt(source, index), specifier }))
  );
  return found.sort((a, b) => a.line - b.line);
}

function importProblem(path: string, { layer, folder }: Place, { specifier }: Import): string | undefined {
  if (specifier === "") return "import of an expression: write the path as a string, the compiler must see it";
  if (specifier === "bun:ffi") {
    return path === NATIVE ? undefined : `imports "bun:ffi": only ${NATIVE} may, use its wrappers`;
  }
  if (specifier.startsWith("node:")) return `imports "${specifier}": use ffi/sys/, node: modules cost start-up time`;
  if (!specifier.startsWith(".")) {
    const packages = layer.packages ?? [];
    if (packages.some((name) => specifier === name || specifier.startsWith(`${name}/`))) return undefined;
    return `imports package "${specifier}": ${layer.path} may import ${packages.join(", ") || "no package"}`;
  }
  const target = join(path, "..", specifier);
  if (isForTests(target)) return `imports "${target}": only tests may`;
  const targetPlace = placeOf(target);
  const isOwn = targetPlace?.layer === layer && targetPlace.folder === folder;
  if (isOwn || targetPlace && layer.imports.includes(targetPlace.layer.path)) return undefined;
  return `imports "${target}": ${layer.path} may import ${layer.imports.join(", ") || "nothing"}`;
}

function namespaceProblems(path: string, lines: readonly string[]): readonly string[] {
  return lines.flatMap((line, index) => {
    const code = /^\s*(\*|\/[/*])/.test(line) ? "" : line.replace(/\/\/.*/, "");
    return /\bsetns\b/.test(code) ? [`${path}:${index + 1}: uses setns: only ffi/netns/ may, use Netns.run()`] : [];
  });
}
