/** Inlines named numbers: every top-level variable costs each call 0.7 µs, used or not; the bundler inlines within functions only. @module */
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import type { Processor } from "./runtime_patch.ts";
import { productSources, REPOSITORY_ROOT } from "../repository.ts";

const DECLARATION = /^(?:export )?const ([A-Z]\w+)(?:: number)? = (?:(arm|process\.arch === "arm64") \? )?([^;?]+);$/gm;
const NUMBER = /^(?:0x[\da-fA-F_]+|0o[0-7_]+|\d[\d_]*|(-\d+|1 << \d+))$/;
/** Left alone are imports, comments and text. The last two groups are the name of a module and a name. */
const TOKEN =
  /^import\b[^;]*;|\/\/[^\n]*|\/\*[^]*?\*\/|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`|(?<![\w$.])(?:([a-z]\w*)\.)?([A-Z]\w+)\b(?!:|\s*=(?!=))/gm;
const IMPORT = /^import (?:\* as (\w+)|\{([^}]*)\}) from "(\.[^"]+)";/gm;

type Constants = ReadonlyMap<string, string>;

/** Copies the product's sources below `directory` with constants inlined; some differ on arm64. */
export function copyInlined(directory: string, processor: Processor): void {
  const paths = productSources();
  const texts = new Map(paths.map((path) => [path, readFileSync(join(REPOSITORY_ROOT, path), "utf8")]));
  const declared = new Map([...texts].map(([path, text]) => [path, declarationsIn(text, processor)]));
  for (const [path, text] of texts) {
    cpSync(join(REPOSITORY_ROOT, path), join(directory, path));
    writeFileSync(join(directory, path), inline(path, text, declared));
  }
}

/** The constants of a module that are numbers; where they differ between processors, those of this one. */
export function declarationsIn(text: string, processor: Processor): Constants {
  const found = Array.from(text.matchAll(DECLARATION), ([, name = "", choice, values = ""]) => {
    const [first = "", second = ""] = choice ? values.split(" : ") : [values, values];
    return [name, processor === "arm64" ? first : second] as const;
  });
  return new Map(found.flatMap(([name, value]) => {
    const [number, composed] = NUMBER.exec(value) ?? [];
    return number === undefined ? [] : [[name, composed ? `(${composed})` : number]];
  }));
}

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
