/**
 * A command for people to paste.
 *
 * Each word is quoted: containers choose the names of their links, such as `x;reboot;#`.
 */
export function shellCommand(words: readonly string[]): string {
  return words.map(shellWord).join(" ");
}

/** A word that sh(1) reads as this text. */
function shellWord(text: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
