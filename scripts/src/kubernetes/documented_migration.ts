/** How docs/kubernetes.md has a cluster change its network: what is tried are the commands that people read. @module */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../repository.ts";

export interface DocumentedStep {
  readonly command: string;
  /** Others are those of whoever has kubectl. */
  readonly isOnNode: boolean;
}

export interface DocumentedMigration {
  readonly once: readonly DocumentedStep[];
  /** They have the word `NODE` for its name. */
  readonly eachNode: readonly DocumentedStep[];
}

const ON_NODE = / *# on the node$/;

/** @param title of the section @throws {Error} if it has not two blocks of commands, those for each node after the others */
export function readMigration(title: string): DocumentedMigration {
  const page = readFileSync(join(REPOSITORY_ROOT, "docs/kubernetes.md"), "utf8");
  const section = page.split(`\n## ${title}\n`)[1]?.split("\n## ")[0] ?? "";
  const [once, eachNode, ...others] = section.split("\n\n").filter((text) => text.startsWith("    ")).map(stepsOf);
  if (!once || !eachNode || others.length > 0) throw new Error(`"${title}" needs two blocks of commands`);
  return { once, eachNode };
}

const stepsOf = (block: string): DocumentedStep[] =>
  block.trimEnd().split("\n").map((line) => ({
    command: line.trim().replace(ON_NODE, ""),
    isOnNode: ON_NODE.test(line),
  }));
