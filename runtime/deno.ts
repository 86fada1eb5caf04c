/** The part of the library that works under Deno. @module */
import * as jsoncParser from "jsonc-parser";
import { useDenoFiles } from "../ffi/sys/deno.ts";
import { setJsoncParser } from "../spec/jsonc.ts";

/** What reads files and text works from then on. The rest throws an error that says so. */
export function prepareForDeno(): void {
  setJsoncParser(jsoncParser);
  useDenoFiles();
}
