/** Text of other programs must not control the terminal. */
export function printable(text: string): string {
  return text.replace(/\p{Cc}/gu, "?");
}

/** Of several lines. */
export function printableLines(text: string): string {
  return text.split("\n").map(printable).join("\n");
}
