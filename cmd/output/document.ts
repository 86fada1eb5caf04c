import { stringifyJson } from "../../spec/jsonc.ts";
import { printableJson } from "../../spec/printable.ts";

/** What a command prints with `--json`. */
export function formatDocument(document: unknown): string {
  return `${printableJson(stringifyJson(document, 4))}\n`;
}
