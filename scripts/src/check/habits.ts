/**
 * Checks for three habits: documentation that only leans on a name, spreading a literal to save lines, and state that
 * belongs to no object.
 *
 * @module
 */
import { lineAt } from "./layers.ts";

const MIN_WORDS = 5;

/** Files whose state is the process's or a foreign object's, and why. Other state is a field of what it is about. */
export const STATE_OWNERS: Readonly<Record<string, string>> = {
  "ffi/netlink/receive_buffer.ts": "one buffer serves all sockets: new memory costs page faults in each call",
  "ffi/netns/netns.ts": "where the kernel has the thread",
  "ffi/sys/boot.ts": "the boot id never changes",
  "ffi/sys/caller.ts": "a worker carries out one call at a time, as if it were the called process",
  "ffi/sys/libc.ts": "the address of the thread's errno",
  "ffi/sys/observer.ts": "a dry run must see all that the process does, also what no context reaches",
  "ffi/sys/signals.ts": "which signals the process blocks",
  "plugins/lib/ruleset/retry.ts": "a lock that the process has: an attempt within another does not wait for it",
  "runtime/netns_gone.ts": "when the machine started: read again if the clock was set",
  "spec/jsonc.ts": "Deno has no require()",
  "spec/result.ts": "a changed copy of a result must not have the mark",
};

/** Problems of the given sources (by path) as `file:line: text`, in order. Tests have none. */
export function habitProblems(sources: ReadonlyMap<string, string>): readonly string[] {
  return [...sources].flatMap(([path, source]) => isTest(path) ? [] : fileHabits(path, source));
}

const isTest = (path: string): boolean => /(_test|\/fixture)\.ts$/.test(path);

function fileHabits(path: string, source: string): readonly string[] {
  const documentation = [...source.matchAll(/^ *\/\*\*(.*?)\*\//gms)].filter(([, text = ""]) => leansOnName(text));
  const spreads = [...withoutTexts(source).matchAll(/\.\.\.(?=[[{])/g)].filter(({ index, input }) =>
    isSpreadAlone(input, index + "...".length)
  );
  // A script is a process of its own, and ends with what it remembers.
  const states = path in STATE_OWNERS || path.startsWith("scripts/")
    ? []
    : [...withoutTexts(source).matchAll(/^(export )?let |\bnew Weak(Map|Set)\b/gm)];
  return [
    ...documentation.map(({ index, 1: text = "" }) =>
      `${path}:${lineAt(source, index)}: "${proseOf(text)}": write a whole sentence, or leave it out`
    ),
    ...spreads.map(({ index }) =>
      `${path}:${lineAt(source, index)}: spreads a literal: write a property or element a line`
    ),
    ...states.map(({ index }) =>
      `${path}:${lineAt(source, index)}: keeps state in the air: make it a field of what it is about`
    ),
  ];
}

const proseOf = (text: string): string =>
  text.replace(/^ *\*/gm, "").replace("@module", "").replace(/\s+/g, " ").trim();

/** Tags such as `@see` and examples in backticks need no sentence. */
function leansOnName(text: string): boolean {
  const prose = proseOf(text);
  if (/^@|^(`[^`]+`[,.]? ?)*$/.test(prose)) return false;
  return prose.split(" ").filter((word) => /\w/.test(word)).length < MIN_WORDS;
}

/** The same length, with blanks for what comments and texts of a line hold. */
function withoutTexts(source: string): string {
  return source.replace(/\/\*.*?\*\/|(?<=^|\s)\/\/[^\n]*|"(?:\\.|[^"\\\n])*"/gs, (text) => text.replace(/[^\n]/g, " "));
}

/** Whether nothing is done with the literal at `start`: of `...[a, b].map(f)`, the result is spread. */
function isSpreadAlone(source: string, start: number): boolean {
  let depth = 0;
  for (let at = start; at < source.length; at++) {
    if (/[[({]/.test(source[at]!)) depth++;
    if (/[\])}]/.test(source[at]!)) depth--;
    if (depth === 0) return /^\s*[,\])}]/.test(source.slice(at + 1, at + 100));
  }
  return false;
}
