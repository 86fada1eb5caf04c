/**
 * The body of `scripts/new-plugin NAME`: writes plugins/NAME/, a plugin that passes every suite, and its lines in the registries.
 * With `--out=DIR`, it writes a program of its own, which uses the library.
 * @module
 */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { hasPlugin } from "../../../plugins/registry.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

const TEMPLATE_DIRECTORY = join(import.meta.dir, "template");
/** The name of the template's plugin, and where its files stand. */
const TEMPLATE_NAME = "new-plugin";
const TEMPLATE_ROOT = "../../../../";
/** Only in the registry does it pass, so here nothing runs it. */
const RENAMED: Readonly<Record<string, string>> = { "tools_tests.ts": "tools_test.ts" };
/** Its files that a program of its own needs. */
const PROGRAM_FILES = ["config.ts", "elements.ts", "model.ts", "plugin.ts"];
const LIBRARY = "@cni/cni";
/** What a registry's lines import, by its path. */
const REGISTRIES = { "plugins/registry.ts": "plugin.ts", "plugins/docs_registry.ts": "docs.ts" };

/** Words that are commands of the program, folders below plugins/, and pages below docs/plugins/. */
const RESERVED_NAMES = ["cni", "lib", "common", "run", "netns", "install", "plugin", "tap-device", "help", "version"];

export function nameProblem(name: string): string {
  if (hasPlugin(name)) return `there is a plugin "${name}" already`;
  if (RESERVED_NAMES.includes(name)) return `"${name}" means something else here`;
  if (/^[a-z][a-z0-9]*(-[a-z0-9]+)*$/.test(name)) return "";
  return `a plugin's name is lower-case words with "-" between them, such as "host-device"`;
}

export function instantiate(text: string, name: string): string {
  const [first = "", ...others] = name.split("-");
  const capitalize = (word: string) => word.slice(0, 1).toUpperCase() + word.slice(1);
  const camelCase = [first, ...others.map(capitalize)].join("");
  return text.replaceAll(`${TEMPLATE_ROOT}plugins/`, "../").replaceAll(TEMPLATE_ROOT, "../../")
    .replaceAll(TEMPLATE_NAME, name).replaceAll("newPlugin", camelCase).replaceAll("NewPlugin", capitalize(camelCase));
}

/** @param file of the plugin's folder */
export function withRegistryLine(registry: string, name: string, folder: string, file = "plugin.ts"): string {
  const entry = /^ {2}"?([a-z0-9-]+)"?: \(\) => import\(.*\n/gm;
  const following = [...registry.matchAll(entry)].find(([, other]) => other! > name);
  const end = registry.indexOf("};", registry.indexOf("_MODULES"));
  const key = /-/.test(name) ? `"${name}"` : name;
  const at = following?.index ?? end;
  return `${registry.slice(0, at)}  ${key}: () => import("./${folder}/${file}"),\n${registry.slice(at)}`;
}

function writePlugin(name: string): string {
  const folder = name.replaceAll("-", "_");
  const directory = join(REPOSITORY_ROOT, "plugins", folder);
  mkdirSync(directory);
  for (const file of readdirSync(TEMPLATE_DIRECTORY)) {
    writeFileSync(
      join(directory, RENAMED[file] ?? file),
      instantiate(readFileSync(join(TEMPLATE_DIRECTORY, file), "utf8"), name),
    );
  }
  for (const [path, file] of Object.entries(REGISTRIES)) {
    const registry = join(REPOSITORY_ROOT, path);
    writeFileSync(registry, withRegistryLine(readFileSync(registry, "utf8"), name, folder, file));
  }
  return `plugins/${folder}`;
}

const NEXT_STEPS = (name: string, directory: string) =>
  `Wrote ${directory}/ and lines in plugins/registry.ts and plugins/docs_registry.ts. The plugin works: it adds an interface with an address, a kernel parameter and a rule.

Next:
  1. Make it yours: ${directory}/plugin.ts, config.ts, elements.ts and plugin_test.ts.
     Say in model.ts what tools such as cni doctor are to know; tools_test.ts shows what they tell.
  2. Say in ${directory}/fixture.ts how the suites over every plugin are to test it.
  3. Say in ${directory}/docs.ts what each key means, and run scripts/docs, which makes the pages of it.
  4. Record what it costs: scripts/budget --record ${name}
  5. TEST_PLUGINS=${name} scripts/conformance tests it alone; scripts/test tests everything.
`;

const PROGRAM = `import { main } from "${LIBRARY}";
import plugin from "./plugin.ts";

main(plugin);
`;
/** "bun check" finds a wrong word of a schema, which is a missing value at run time. npm brings Bun. */
function packageOf(name: string): object {
  const { devDependencies } = JSON.parse(readFileSync(join(REPOSITORY_ROOT, "package.json"), "utf8"));
  return {
    private: true,
    type: "module",
    scripts: { build: `bun check && bun build --compile main.ts --outfile=${name}` },
    devDependencies: { "bun": devDependencies.bun, "bun-types": devDependencies["bun-types"] },
    allowScripts: { bun: true },
  };
}
/** For an editor, and for "bun check": the library's types are its sources. */
const TYPESCRIPT = {
  compilerOptions: {
    strict: true,
    noEmit: true,
    types: ["bun-types"],
    lib: ["esnext"],
    target: "esnext",
    module: "preserve",
    moduleResolution: "bundler",
    allowImportingTsExtensions: true,
  },
};
const toText = (value: object): string => `${JSON.stringify(value, null, 2)}\n`;

/** Files that use the library, for a program of its own. */
export function programFiles(name: string): Readonly<Record<string, string>> {
  const fromLibrary = (file: string) =>
    readFileSync(join(TEMPLATE_DIRECTORY, file), "utf8").replaceAll(TEMPLATE_ROOT, `${LIBRARY}/`);
  return {
    ...Object.fromEntries(PROGRAM_FILES.map((file) => [file, instantiate(fromLibrary(file), name)])),
    "main.ts": PROGRAM,
    "package.json": toText(packageOf(name)),
    "tsconfig.json": toText(TYPESCRIPT),
  };
}

/** @throws {Error} if the directory is there already */
function writeProgram(name: string, directory: string): void {
  mkdirSync(directory);
  for (const [file, text] of Object.entries(programFiles(name))) writeFileSync(join(directory, file), text);
}

const PROGRAM_STEPS = (name: string, directory: string) =>
  `Wrote ${directory}/: plugin.ts, config.ts, elements.ts, model.ts, and main.ts, which makes a program of them.

Next:
  1. cd ${directory} && npm install PATH/cni-library-vVERSION.tgz   # the library is in the release; npm brings Bun
  2. Make it yours: plugin.ts, config.ts, elements.ts and model.ts.
  3. npm run build                                     # checks types, then writes the program ${name}
`;

function main(): number {
  const { values: { out }, positionals: [name = ""] } = parseArgs({
    options: { out: { type: "string" } },
    allowPositionals: true,
  });
  const problem = nameProblem(name);
  if (problem) {
    console.error(`Cannot make a plugin "${name}": ${problem}`);
    return 1;
  }
  if (out === undefined) console.log(NEXT_STEPS(name, writePlugin(name)));
  else {
    writeProgram(name, out);
    console.log(PROGRAM_STEPS(name, out));
  }
  return 0;
}

if (import.meta.main) {
  try {
    process.exitCode = main();
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  }
}
