/** Text of other programs must not control the terminal. */
export function printable(text: string): string {
  return text.replace(/\p{Cc}/gu, "?");
}

/** Of several lines. */
export function printableLines(text: string): string {
  return text.split("\n").map(printable).join("\n");
}

/** The same JSON. `JSON.stringify` escapes the other control characters itself. */
export function printableJson(json: string): string {
  return json.replace(/[\u007f-\u009f]/g, (char) => `\\u00${char.charCodeAt(0).toString(16)}`);
}
