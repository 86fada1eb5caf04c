import { printStdout } from "../../ffi/sys/stdio.ts";
import { failureOf, type RemovalReport, type RemovedNetwork } from "../../networks/remove.ts";
import { formatDocument } from "../output/document.ts";
import { LATEST } from "../../spec/version.ts";
import type { ParsedOptions } from "../options.ts";
import { formatRemoved } from "../output/network.ts";
import { PRINT_JSON_OPTION } from "./network.ts";
import { log } from "./runtime.ts";

/**
 * Prints what was removed, also before a failure.
 *
 * @returns the exit status
 * @throws {CniError} the failure, unless the document has it
 */
export function printRemoval(options: ParsedOptions, remove: (report: RemovalReport) => void): number {
  const removed: RemovedNetwork[] = [];
  const failure = failureOf(() => remove((network) => removed.push(network)));
  const isJson = options.has(PRINT_JSON_OPTION.name) && (removed.length > 0 || !failure);
  printStdout(isJson ? formatDocument(removed.map(toDocument)) : formatRemoved(removed));
  if (!failure) return 0;
  if (!isJson) throw failure;
  log(failure.message);
  return 1;
}

function toDocument({ failure, ...network }: RemovedNetwork): object {
  return { ...network, ...failure && { failure: failure.toJSON(LATEST) } };
}
