/** Debian's packages for the virtual machine: unpacked, never installed. @module */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { separateAptOptions } from "../harness/apt.ts";
import { runIn } from "../harness/process.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import type { Machine } from "./machine.ts";

const KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg";

/** Options with which apt knows the packages of a machine. @param directory where what it reads is kept */
export function aptOptions(
  { architecture, release }: Pick<Machine, "architecture" | "release">,
  directory: string,
): string[] {
  if (!Bun.which("apt-get")) throw new Error("Cannot prepare the virtual machine: this is not a Debian system");
  const options = separateAptOptions(join(directory, "apt"), architecture);
  return release ? [...options, ...sourceOptions(options, join(directory, "apt"), release)] : options;
}

/** Has apt look into the machine's archive for another release. */
function sourceOptions(options: readonly string[], directory: string, release: string): string[] {
  const targets = ["apt-get", ...options, "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"];
  const archive = afterUpdate(options, "an archive", () => /^.*\/debian\/$/m.exec(runIn(directory, ...targets))?.[0]);
  const list = join(directory, "sources.list");
  writeFileSync(list, `deb [signed-by=${KEYS}] ${archive} ${release} main\n`);
  return ["-o", `Dir::Etc::SourceList=${list}`, "-o", "Dir::Etc::SourceParts=/dev/null"];
}

/** Asks apt; where it knows no answer, its lists may be missing or old, and it is asked once more after an update. */
export function afterUpdate(options: readonly string[], wanted: string, ask: () => string | undefined): string {
  try {
    const answer = ask();
    if (answer) return answer;
  } catch {
    // As if there were no answer.
  }
  runIn(REPOSITORY_ROOT, "apt-get", "-qq", ...options, "update");
  const answer = ask();
  if (!answer) throw new Error(`Cannot prepare the virtual machine: this machine's archives of Debian lack ${wanted}`);
  return answer;
}
