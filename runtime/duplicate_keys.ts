import { locate } from "../spec/jsonc.ts";
import { keyPaths } from "../spec/key_paths.ts";
import { memberPath } from "../spec/schema.ts";
import { isForPeople } from "../spec/unknown_keys.ts";

/** Makes `plugins[0].mtu is there more than once, and the last one counts (web.conflist:7:5)`. */
export function describeDuplicateKeys(text: string, source: string): string[] {
  return findDuplicateKeys(text).map((path) => {
    const { line, column } = locate(text, path) ?? {};
    const location = line ? `${source}:${line}:${column}` : source;
    return `${path} is there more than once, and the last one counts (${location})`;
  });
}

export function findDuplicateKeys(text: string): string[] {
  const seen = new Set<string>();
  const duplicates = new Map<string, readonly string[]>();
  for (const segments of keyPaths(text)) {
    if (segments.some(isForPeople)) continue;
    const path = formatPath(segments);
    if (seen.has(path)) duplicates.set(path, segments);
    seen.add(path);
  }
  // Inside duplicate objects, only the last object counts.
  const isInDuplicate = (segments: readonly string[]) =>
    segments.some((_, i) => i > 0 && duplicates.has(formatPath(segments.slice(0, i))));
  return [...duplicates].filter(([, segments]) => !isInDuplicate(segments)).map(([path]) => path);
}

function formatPath(segments: readonly string[]): string {
  return segments.reduce(
    (path, segment) => /^\[[0-9]+\]$/.test(segment) ? path + segment : memberPath(path, segment),
    "",
  );
}
