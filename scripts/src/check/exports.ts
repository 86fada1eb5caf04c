/** Checks that an exported name means one thing. Exempt are functions called through a module's name: `link.add`, `rule.add`. @module */
import { join } from "node:path";
import { lineAt } from "./layers.ts";

export interface Declaration {
  readonly path: string;
  readonly line: number;
  readonly name: string;
  readonly isFunction: boolean;
}

/** Problems of the given sources (by path) as `file:line: text`, in order. */
export function exportProblems(sources: ReadonlyMap<string, string>): readonly string[] {
  const declarations = [...sources].flatMap(([path, source]) => declarationsOf(path, source));
  const { namespaces, names } = importedNames(sources);
  const isCalledThroughModule = ({ path, name, isFunction }: Declaration) =>
    isFunction && namespaces.has(path) && !names.has(`${path} ${name}`);
  const checked = declarations.filter((declaration) => !isCalledThroughModule(declaration));
  const duplicates = [...Map.groupBy(checked, ({ name }) => name).values()].flatMap(([first, ...others]) =>
    others.map(({ path, line, name }) =>
      `${path}:${line}: exports "${name}", as ${first!.path} does: rename one, or use one for both`
    )
  );
  return [...duplicates, ...[...sources].flatMap(([path, source]) => renamedExports(path, source))];
}

/** The exported declarations of a file; a type and a value of one name, and overloads, are one. */
export function declarationsOf(path: string, source: string): readonly Declaration[] {
  const found = new Map<string, Declaration>();
  const add = (index: number, name: string, isFunction: boolean) => {
    if (!found.has(name)) found.set(name, { path, line: lineAt(source, index), name, isFunction });
  };
  const single = /^export (?:async )?(?:abstract )?(function\*?|const|let|class|interface|type|enum) ([\w$]+)/gm;
  for (const { index, 1: keyword = "", 2: name = "" } of source.matchAll(single)) {
    add(index, name, keyword.startsWith("function"));
  }
  for (const { index, 1: list = "" } of source.matchAll(/^export const [{[]([^=]*?)[}\]](?::| =)/gm)) {
    for (const name of list.split(",")) add(index, name.replace(/^.*:/s, "").trim(), false);
  }
  return [...found.values()].filter(({ name }) => name !== "");
}

/** The modules that are imported as a namespace, and every `module name` that is imported by its name. */
function importedNames(sources: ReadonlyMap<string, string>) {
  const namespaces = new Set<string>();
  const names = new Set<string>();
  for (const [path, source] of sources) {
    for (const [, from = ""] of source.matchAll(/^import (?:type )?\* as \w+ from "(\.[^"]+)"/gm)) {
      namespaces.add(join(path, "..", from));
    }
    for (const [, list = "", from = ""] of source.matchAll(/^import (?:type )?\{([^}]*)\} from "(\.[^"]+)"/gm)) {
      for (const name of list.split(",")) {
        names.add(`${join(path, "..", from)} ${name.trim().replace(/^type /, "").replace(/ as .*/, "")}`);
      }
    }
  }
  return { namespaces, names };
}

function renamedExports(path: string, source: string): readonly string[] {
  const renamed = source.matchAll(/^export (?:type )?\{[^}]*?([\w$]+) as ([\w$]+)[^}]*\}/gm);
  return [...renamed].map(({ index, 1: from, 2: to }) =>
    `${path}:${lineAt(source, index)}: exports "${from}" as "${to}": one thing has one name`
  );
}
