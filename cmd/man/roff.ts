/** @see groff_man(7) @module */

// Plain in roff, but not shown as ASCII. @see groff_char(7)
const SPECIAL: Readonly<Record<string, string>> = {
  "\\": "\\e",
  "-": "\\-",
  "'": "\\(aq",
  '"': "\\(dq",
  "`": "\\(ga",
  "^": "\\(ha",
  "~": "\\(ti",
};

export function escapeRoff(text: string): string {
  return text.replace(/[\\\-'"`^~]|\P{ASCII}/gu, (char) => SPECIAL[char] ?? unicodeEscape(char))
    .replace(/^\./gm, "\\&.");
}

function unicodeEscape(char: string): string {
  return `\\[u${char.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}]`;
}

/** Reads the Markdown of our documentation: `code` and links. */
export function markdownToRoff(text: string): string {
  const parts = text.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").split(/`([^`]*)`/);
  return parts.map((part, i) => i % 2 === 1 ? bold(part) : escapeRoff(part)).join("");
}

export function bold(text: string): string {
  return `\\fB${escapeRoff(text)}\\fR`;
}

/** Marks words that the reader replaces. */
export function italic(text: string): string {
  return `\\fI${escapeRoff(text)}\\fR`;
}

export function header(name: string, section: number, version: string): string {
  const parts = [name.toUpperCase(), String(section), "", `cni ${version}`, "Container Network Interface"];
  return `.TH ${parts.map((part) => `"${escapeRoff(part)}"`).join(" ")}\n.ad l\n.nh`;
}

/** Returns nothing without a body. */
export function section(title: string, ...body: readonly string[]): string {
  return joinBlocks(".SH", title, body);
}

export function subsection(title: string, ...body: readonly string[]): string {
  return joinBlocks(".SS", title, body);
}

function joinBlocks(macro: string, title: string, body: readonly string[]): string {
  const blocks = body.filter((block) => block !== "");
  return blocks.length === 0 ? "" : [`${macro} "${escapeRoff(title)}"`, ...blocks].join("\n");
}

export function paragraph(text: string): string {
  return text === "" ? "" : `.PP\n${text}`;
}

export function tagged(tag: string, text: string): string {
  return `.TP\n${tag}\n${text}`;
}

export function bulleted(text: string): string {
  return `.IP \\(bu 2\n${text}`;
}

export function verbatim(text: string): string {
  return `.PP\n.RS 4\n.nf\n${escapeRoff(text)}\n.fi\n.RE`;
}
