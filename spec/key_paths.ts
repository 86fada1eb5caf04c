/** All keys in a JSON text: a parsed object keeps only the last of two equal ones. */

interface Level {
  readonly path: readonly string[];
  readonly isObject: boolean;
  /** The next element, in an array. */
  index: number;
  /** The current key, in an object; without one, the next string is a key. */
  key: string | undefined;
}

/**
 * The path of every key, in order: `["sysctl", "net.core.somaxconn"]`. Array elements are `[0]`.
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
