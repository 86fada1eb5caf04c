import { CniError, Code } from "../spec/error.ts";
import { sortedByBytes } from "../runtime/sort_by_bytes.ts";

/** Two digits, and then letters: after `99-` nothing with two digits sorts behind. */
const PREFIXES = ["", "z"].flatMap((letter) => Array.from({ length: 90 }, (_, i) => `${letter}${i + 10}-`));

/**
 * The file name of a new network: `20-web.conflist`. It sorts behind all others, since containerd and CRI-O use the first.
 *
 * @param present names of the configuration files in the directory
 * @throws {CniError} if no name sorts behind them
 */
export function chooseFileName(network: string, present: readonly string[]): string {
  const last = sortedByBytes(present).at(-1);
  const prefix = PREFIXES.find((candidate) => last === undefined || sortedByBytes([candidate, last])[0] === last);
  if (prefix !== undefined) return `${prefix}${network}.conflist`;
  throw new CniError(Code.InvalidConfig, `Cannot name a file for network "${network}" that sorts behind "${last}"`, {
    details: "engines use the file that sorts first; rename that file, such as with two digits in front",
  });
}
