/** Recorded state files: of each released version, and of formats before the first release. @module */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import packageJson from "../../../package.json" with { type: "json" };
import type { StateFiles } from "../../../testing/state_host.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

/** A file for each version: the texts by path. */
export const STATE_SAMPLES: string = join(REPOSITORY_ROOT, "testdata/state");

/** The version whose files this program writes. */
export const VERSION: string = packageJson.version;

export function stateSamples(): ReadonlyMap<string, StateFiles> {
  const names = readdirSync(STATE_SAMPLES).sort();
  return new Map(
    names.map((name) => [name.replace(/\.json$/, ""), JSON.parse(readFileSync(join(STATE_SAMPLES, name), "utf8"))]),
  );
}
