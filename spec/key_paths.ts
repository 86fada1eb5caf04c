/**
 * The keys of a JSON text, one by one: reading it into objects keeps only the last of two that are equal.
 *
 * @module
 */

interface Level {
  /** Of the object or array itself. */
  readonly path: readonly string[];
  readonly isObject: boolean;
  /** Of an array: the elements before the one that comes. */
  index: number;
  /** The key whose value comes, or the last one's; the next text is a key while there is none. */
  key: string | undefined;
}

/**
 * Gives the path of every key of every object, in the order of the text: `["sysctl", "net.core.somaxconn"]`. Elements of arrays have
 * names such as `[0]`.
 *
 * @param text what `parseJson` accepts, comments and all
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
