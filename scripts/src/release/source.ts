import { readFileSync } from "node:fs";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../repository.ts";

/** What a release is made from. */
export interface ReleaseSource {
  readonly version: string;
  /** Absent in a trial with uncommitted changes. */
  readonly commit?: string;
  /** The time of all files, in seconds: that of the commit, unless SOURCE_DATE_EPOCH is set. */
  readonly time: number;
  /** Name and address of who made the commit. */
  readonly maintainer: string;
}

/** @throws {Error} without a commit, or with changes that are in no commit */
export function findReleaseSource(isTrial: boolean): ReleaseSource {
  const { version } = JSON.parse(readFileSync(join(REPOSITORY_ROOT, "package.json"), "utf8"));
  const epoch = process.env["SOURCE_DATE_EPOCH"];
  if (epoch !== undefined && !/^\d{1,10}$/.test(epoch)) {
    throw new Error(`Cannot make a release: SOURCE_DATE_EPOCH is "${epoch}", expected a time in seconds`);
  }
  const changes = git("status", "--porcelain");
  if (changes !== "" && !isTrial) {
    throw new Error(
      `Cannot make a release: there are changes in no commit:\n${changes}\nCommit them, or try it with --uncommitted`,
    );
  }
  const [commit = "", time, maintainer = ""] = git("log", "-1", "--format=%H%n%ct%n%cn <%ce>").split("\n");
  return { version, time: Number(epoch ?? time), maintainer, ...changes === "" && { commit } };
}

function git(...words: readonly string[]): string {
  const { success, stdout, stderr } = Bun.spawnSync(["git", ...words], { cwd: REPOSITORY_ROOT, stderr: "pipe" });
  if (!success) throw new Error(`Cannot make a release: "git ${words.join(" ")}" failed: ${`${stderr}`.trim()}`);
  return stdout.toString().trimEnd();
}
