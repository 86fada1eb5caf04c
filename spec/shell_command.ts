/** Quotes each word for people to paste: containers choose the names of their links, such as `x;reboot;#`. */
export function shellCommand(words: readonly string[]): string {
  return words.map(shellWord).join(" ");
}

function shellWord(text: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
