/**
 * Puts the numbers of named constants where their names are used: every top-level variable costs every call of the binary 0.7 µs, used
 * or not, and the kernel's headers have hundreds. The bundler does it for what is in a function only.
 *
 * @module
 */
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { productSources, REPOSITORY_ROOT } from "../repository.ts";

const DECLARATION = /^(?:export )?const ([A-Z][A-Z0-9_]+)(?:: number)? = (0x[\da-fA-F_]+|0o[0-7_]+|\d[\d_]*);$/gm;
/** What is left alone: imports, comments, text; and, as the last two, a name of a module and a name. */
const TOKEN =
  /^import\b[^;]*;|\/\/[^\n]*|\/\*[^]*?\*\/|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`|(?<![\w$.])(?:([a-z]\w*)\.)?([A-Z][A-Z0-9_]+)\b(?!\s*[:=](?!=))/gm;
const IMPORT = /^import (?:\* as (\w+)|\{([^}]*)\}) from "(\.[^"]+)";/gm;

type Constants = ReadonlyMap<string, string>;

/** Copies the product's sources below `directory`, with the constants of `ffi/` in the place of their names. */
export function copyInlined(directory: string): void {
  const paths = productSources();
  const texts = new Map(paths.map((path) => [path, readFileSync(join(REPOSITORY_ROOT, path), "utf8")]));
  const declared = new Map([...texts].map(([path, text]) => [path, declarationsIn(text)]));
  for (const [path, text] of texts) {
    cpSync(join(REPOSITORY_ROOT, path), join(directory, path));
    if (path.startsWith("ffi/")) writeFileSync(join(directory, path), inline(path, text, declared));
  }
}

function declarationsIn(text: string): Constants {
  return new Map([...text.matchAll(DECLARATION)].map(([, name = "", value = ""]) => [name, value]));
}

/** The text of a module with numbers for names, line by line as it was. */
export function inline(path: string, text: string, declared: ReadonlyMap<string, Constants>): string {
  const knownConstants = new Map(declared.get(path));
  for (const [, module, names, from = ""] of text.matchAll(IMPORT)) {
    const constants = declared.get(normalize(join(dirname(path), from))) ?? new Map<string, string>();
    if (module) { for (const [name, value] of constants) knownConstants.set(`${module}.${name}`, value); }
    for (const name of names?.split(",").map((importedName) => importedName.trim()) ?? []) {
      const value = constants.get(name);
      if (value !== undefined) knownConstants.set(name, value);
    }
  }
  return text.replace(
    TOKEN,
    (token, module: string | undefined, name: string | undefined) =>
      name === undefined ? token : knownConstants.get(module ? `${module}.${name}` : name) ?? token,
  );
}
