/** apt(8) beside the machine's own state. @module */
import { mkdirSync } from "node:fs";
import { join } from "node:path";

/** Options with which apt knows packages of `architecture`, and none as installed. Its lists are below `directory`: the machine keeps its own. */
export function separateAptOptions(directory: string, architecture: string): string[] {
  const [lists, cache] = [join(directory, "lists"), join(directory, "cache")];
  for (const folder of [lists, join(cache, "archives")]) mkdirSync(join(folder, "partial"), { recursive: true });
  return [
    `APT::Architecture=${architecture}`,
    `APT::Architectures=${architecture}`,
    `Dir::State::Lists=${lists}`,
    "Dir::State::Status=/dev/null",
    `Dir::Cache=${cache}`,
    // The unprivileged user of apt cannot enter folders of ours.
    "APT::Sandbox::User=root",
  ].flatMap((option) => ["-o", option]);
}
