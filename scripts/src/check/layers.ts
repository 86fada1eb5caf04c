/** Checks that imports point down the layers and only one file reaches the kernel. Tests may import all but other plugins' files. @module */
import { join } from "node:path";

interface Layer {
  /** A folder ending in `/`, a file, or `plugins/*`, each plugin but its `docs.ts`, which no call loads. */
  readonly path: string;
  /** Paths of other rows, or of single files in them. `type:` in front allows `import type` only. */
  readonly imports: readonly string[];
  /** npm packages; every one costs start-up time in each call of a plugin. */
  readonly packages?: readonly string[];
}

const SYS = ["ffi/sys/", "ffi/address.ts"];
const KERNEL = [...SYS, "ffi/netlink/"];
const FAMILIES = ["ffi/route/", "ffi/nft/", "ffi/conntrack/", "ffi/diag/"];
const FFI = [
  ...KERNEL,
  ...FAMILIES,
  "ffi/dbus/",
  "ffi/packet/",
  "ffi/netns/",
];
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
];

/** Only this file loads the plugins' docs.ts: no call of a plugin needs them. */
const DOCS_REGISTRY = "plugins/docs_registry.ts";
const REGISTRIES = ["plugins/registry.ts", DOCS_REGISTRY];

/** What is made of plugins. It knows their models, and none of them by name. */
const TOOL = [...PLUGIN_LIB, "runtime/"];

/** The layers, lowest first: each row names rows above it only. This is the one place that says which import is allowed. */
export const LAYERS: readonly Layer[] = [
  { path: "ffi/address.ts", imports: [] },
  { path: "ffi/sys/", imports: ["ffi/address.ts"] },
  { path: "ffi/netlink/", imports: SYS },
  { path: "ffi/route/", imports: KERNEL },
  { path: "ffi/nft/", imports: KERNEL },
  { path: "ffi/conntrack/", imports: KERNEL },
  { path: "ffi/diag/", imports: KERNEL },
  { path: "ffi/dbus/", imports: SYS },
  { path: "ffi/packet/", imports: SYS },
  { path: "ffi/netns/", imports: [...KERNEL, ...FAMILIES] },
  { path: "spec/", imports: ["ffi/address.ts", "type:ffi/sys/error.ts"], packages: ["jsonc-parser"] },
  { path: MODEL, imports: [...FFI, "spec/"] },
  { path: PROTOCOL, imports: [...FFI, "spec/", MODEL] },
  { path: "plugins/lib/ruleset/", imports: PLUGIN_BASE },
  { path: "plugins/lib/links/", imports: PLUGIN_BASE },
  { path: "plugins/lib/compat/", imports: [...PLUGIN_BASE, "plugins/lib/ruleset/"] },
  {
    path: "plugins/lib/veth/",
    imports: [...PLUGIN_BASE, "plugins/lib/ruleset/", "plugins/lib/links/", "plugins/lib/compat/"],
  },
  { path: "plugins/lib/docs/", imports: ["type:spec/"] },
  { path: "plugins/*/docs.ts", imports: ["plugins/lib/docs/"] },
  { path: "plugins/*", imports: PLUGIN_LIB },
  { path: "plugins/registry.ts", imports: ["spec/", MODEL, PROTOCOL, "plugins/*"] },
  { path: DOCS_REGISTRY, imports: ["plugins/*/docs.ts", "plugins/lib/docs/", "plugins/registry.ts"] },
  { path: "program/", imports: ["ffi/sys/"] },
  { path: "runtime/", imports: [...PLUGIN_LIB, "plugins/registry.ts"] },
  // What only mod.ts loads.
  { path: "runtime/deno.ts", imports: ["ffi/sys/", "spec/"], packages: ["jsonc-parser"] },
  { path: "containers/", imports: [...PLUGIN_LIB, "runtime/"] },
  { path: "networks/", imports: [...TOOL, ...REGISTRIES, "plugins/lib/docs/", "containers/"] },
  { path: "inspect/", imports: [...TOOL, "plugins/registry.ts", "containers/", "networks/"] },
  { path: "heal/", imports: [...TOOL, "plugins/registry.ts", "inspect/"] },
  {
    path: "server/",
    imports: [...TOOL, "plugins/registry.ts", "program/", "networks/", "heal/"],
    packages: ["bun", "prom-client"],
  },
  {
    path: "cmd/",
    imports: [
      ...TOOL,
      ...REGISTRIES,
      "plugins/lib/docs/",
      "program/",
      "containers/",
      "networks/",
      "inspect/",
      "heal/",
      "server/",
    ],
    packages: ["bun"],
  },
];

/** Only this file may reach native code: every other module gets typed wrappers with checked arguments. */
const NATIVE = "ffi/sys/libc.ts";

/** Only these may change the namespace of the thread; everything else goes through a handle that goes back. */
const NAMESPACES = ["ffi/netns/netns.ts", "ffi/netns/mounts.ts", NATIVE];
const MAX_LINES = 500;

/** How a module is imported; `require()`, which loads when it is called, counts as `import()`. */
type ImportForm = "import" | "import type" | "import()";

export interface Import {
  readonly line: number;
  readonly form: ImportForm;
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
  const layer = layerOf(path);
  const isProduct = /^(ffi|spec|plugins|program|runtime|containers|networks|inspect|heal|server|cmd)\//.test(path) &&
    !isForTests(path);
  const imports = importsOf(source).flatMap((found) => {
    const problem = isProduct ? layer && importProblem(path, layer, found) : otherPluginProblem(path, layer, found);
    return problem ? [`${path}:${found.line}: ${problem}`] : [];
  });
  const tooLong = `${path}:${MAX_LINES + 1}: file has ${lines.length - 1} lines: split it, ${MAX_LINES} is the limit`;
  const noLayer = `${path}:1: file belongs to no layer: add it to LAYERS in scripts/src/check/layers.ts`;
  return [
    ...lines.length - 1 > MAX_LINES ? [tooLong] : [],
    ...isProduct && !layer ? [noLayer] : [],
    ...imports,
    ...isProduct && !NAMESPACES.includes(path) ? namespaceProblems(path, lines) : [],
  ];
}

const isForTests = (path: string): boolean =>
  /^(testing|e2e|scripts)\//.test(path) || /(_test|\/fixture)\.ts$/.test(path);

/** A plugin's tests and fixture get other plugins from the registry, as a caller does. */
function otherPluginProblem(path: string, layer: Layer | undefined, { specifier }: Import): string | undefined {
  const target = join(path, "..", specifier);
  const targetPath = specifier.startsWith(".") ? layerOf(target)?.path ?? "" : "";
  // True of `plugins/bridge/`, not of the rows for files and for `plugins/lib/`.
  const isPlugin = (layerPath = "") => /^plugins\/\w+\/$/.test(layerPath);
  if (!isPlugin(layer?.path) || !isPlugin(targetPath) || targetPath === layer?.path) return undefined;
  return `imports "${target}": a file of another plugin, take the plugin from plugins/registry.ts`;
}

/** The row a file belongs to: the longest that matches; `plugins/*` narrowed to the plugin's own file and folder. */
function layerOf(path: string): Layer | undefined {
  const matches = LAYERS.filter((layer) => !layer.path.includes("*") && isWithin(path, layer.path));
  const best = matches.sort((a, b) => b.path.length - a.path.length)[0];
  if (best || !/^plugins\/(?!lib\/)/.test(path)) return best;
  if (isDocs(path)) return LAYERS.find((layer) => layer.path === "plugins/*/docs.ts");
  return { ...LAYERS.find((layer) => layer.path === "plugins/*")!, path: pluginFolder(path) };
}

const isDocs = (path: string): boolean => /^plugins\/\w+\/docs\.ts$/.test(path);
const pluginFolder = (path: string): string => `plugins/${path.split("/")[1]}/`;

/** @param path a file, a folder that ends in `/`, or `plugins/*` for the folder of any plugin */
function isWithin(target: string, path: string): boolean {
  if (path === "plugins/*") return layerOf(target)?.path === pluginFolder(target);
  if (path === "plugins/*/docs.ts") return isDocs(target);
  return path.endsWith("/") ? target.startsWith(path) : target === path;
}

export const lineAt = (source: string, index: number): number => source.slice(0, index).split("\n").length;

/** Finds every import in a formatted source: static ones start a line, others may stand anywhere. */
export function importsOf(source: string): readonly Import[] {
  const find = (pattern: RegExp, toImport: (match: RegExpExecArray) => Omit<Import, "line">): Import[] =>
    [...source.matchAll(pattern)].map((match) => ({
      line: lineAt(source, match.index),
      ...toImport(match),
    }));
  return [
    ...find(/^(?:import|export)\s+(type\b)?[\w\s{},*$]*?\bfrom\s+"([^"]+)"/gm, ([, type, specifier = ""]) => ({
      form: type ? "import type" : "import",
      specifier,
    })),
    ...find(/^import\s+"([^"]+)"/gm, ([, specifier = ""]) => ({ form: "import", specifier })),
    ...find(/^(?!\s*(?:\*|\/[/*])).*?\b(?:import|require)\(\s*(?:"([^"]*)")?/gm, ([, specifier = ""]) => ({
      form: "import()",
      specifier,
    })),
  ].sort((a, b) => a.line - b.line);
}

function importProblem(path: string, layer: Layer, { form, specifier }: Import): string | undefined {
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
  if (isDocs(target) && path !== DOCS_REGISTRY) {
    return `imports "${target}": only ${DOCS_REGISTRY} may, no call of a plugin needs it`;
  }
  if (isWithin(target, layer.path)) return undefined;
  if (layer.imports.some((rule) => allows(rule, form, target))) return undefined;
  return `${form} of "${target}": ${layer.path} may import ${layer.imports.join(", ") || "nothing"}`;
}

function allows(rule: string, form: ImportForm, target: string): boolean {
  if (!rule.startsWith("type:")) return isWithin(target, rule);
  return form === "import type" && isWithin(target, rule.slice("type:".length));
}

function namespaceProblems(path: string, lines: readonly string[]): readonly string[] {
  return lines.flatMap((line, index) => {
    const code = /^\s*(\*|\/[/*])/.test(line) ? "" : line.replace(/\/\/.*/, "");
    return /\bsetns\b/.test(code) ? [`${path}:${index + 1}: uses setns: only ffi/netns/ may, use Netns.run()`] : [];
  });
}
