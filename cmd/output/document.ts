import { stringifyJson } from "../../spec/jsonc.ts";
import { printableJson } from "../../spec/printable.ts";

export function formatDocument(document: unknown): string {
  return `${printableJson(stringifyJson(document, 4))}\n`;
}
