/** The keys of a JSON text, one by one: an object keeps only the last of two equal keys. @module */

interface Level {
  /** Of the object or array itself. */
  readonly path: readonly string[];
  readonly isObject: boolean;
  /** Of an array: the index of the next element. */
  index: number;
  /** Of an object: the current key; while there is none, the next string is a key. */
  key: string | undefined;
}

/**
 * The path of every key of every object, in the order of the text: `["sysctl", "net.core.somaxconn"]`. Elements of
 * arrays have names such as `[0]`.
 *
 * @param text what `parseJson` accepts
 */
export function* keyPaths(text: string): Generator<readonly string[]> {
  const levels: Level[] = [];
  for (const [token] of text.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],]|\/\/[^\n]*|\/\*[^]*?\*\//g)) {
    const level = levels[levels.length - 1];
    if (token === "{" || token === "[") {
      levels.push({ path: childPath(level), isObject: token === "{", index: 0, key: undefined });
    } else if (token === "}" || token === "]") levels.pop();
    else if (!level) continue;
    else if (token === ",") {
      level.index++;
      level.key = undefined;
    } else if (level.isObject && token[0] === '"' && level.key === undefined) {
      level.key = JSON.parse(token) as string;
      yield childPath(level);
    }
  }
}

function childPath(level: Level | undefined): readonly string[] {
  return level ? [...level.path, level.isObject ? level.key ?? "" : `[${level.index}]`] : [];
}
