/** How docs/kubernetes.md has a cluster leave flannel: what is tried are the commands that people read. @module */
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

/** @throws {Error} if the page has not two blocks of commands, those for each node after the others */
export function readMigration(): DocumentedMigration {
  const page = readFileSync(join(REPOSITORY_ROOT, "docs/kubernetes.md"), "utf8");
  const section = page.split("\n## From flannel\n")[1]?.split("\n## ")[0] ?? "";
  const [once, eachNode, ...others] = section.split("\n\n").filter((text) => text.startsWith("    ")).map(stepsOf);
  if (!once || !eachNode || others.length > 0) throw new Error('"From flannel" needs two blocks of commands');
  return { once, eachNode };
}

const stepsOf = (block: string): DocumentedStep[] =>
  block.trimEnd().split("\n").map((line) => ({
    command: line.trim().replace(ON_NODE, ""),
    isOnNode: ON_NODE.test(line),
  }));
