/** Marks of direction reorder a line on the terminal, also a command to copy. Separators of lines begin a new one. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** Text of other programs must not control the terminal. The width stays. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, "?");
}

export function printableLines(text: string): string {
  return text.split("\n").map(printable).join("\n");
}

/** Says which characters were there: `\x1b`, `\u202e`. */
export function escapeUnprintable(text: string): string {
  return text.replace(UNPRINTABLE, (char) => {
    const hex = char.codePointAt(0)!.toString(16);
    return hex.length <= 2 ? `\\x${hex.padStart(2, "0")}` : `\\u${hex.padStart(4, "0")}`;
  });
}

/** The JSON stays the same: it may hold these characters as they are. */
export function printableJson(json: string): string {
  return json.replace(
    /[\u007f-\u009f\p{Cf}\p{Zl}\p{Zp}]/gu,
    (char) => char.split("").map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join(""),
  );
}
