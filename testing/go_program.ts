/**
 * Programs around libraries of other projects in Go, whose modules are in `testdata/`.
 *
 * @module
 */
import { test } from "bun:test";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../scripts/src/repository.ts";

/** The first time, its modules are downloaded. */
const BUILD_TIMEOUT_MS = 240_000;

/** A program, and tests that need it. */
export interface GoProgram {
  readonly path: string;
  /** Why there is none, or "". */
  readonly obstacle: string;
  /** A test that is skipped and says why where there is no program. */
  test(name: string, body: () => void | Promise<void>): void;
}

/** Builds `testdata/NAME`. @param programs what its tests need besides */
export function buildGoProgram(name: string, programs: readonly string[] = []): GoProgram {
  const path = join(REPOSITORY_ROOT, "dist", name);
  const missing = ["go", ...programs].filter((program) => Bun.which(program) === null);
  const obstacle = missing.length > 0
    ? `needs ${missing.join(", ")}`
    : build(join(REPOSITORY_ROOT, "testdata", name), path);
  return {
    path,
    obstacle,
    test: (name, body) => obstacle === "" ? test(name, body) : test.skip(`${name} # ${obstacle}`, body),
  };
}

function build(source: string, path: string): string {
  const { success, stderr } = Bun.spawnSync(["go", "build", "-buildvcs=false", "-o", path, "."], {
    cwd: source,
    env: { ...process.env, CGO_ENABLED: "0", GOFLAGS: "-mod=readonly", GOTOOLCHAIN: "local" },
    timeout: BUILD_TIMEOUT_MS,
  });
  return success ? "" : `Go cannot build it: ${stderr.toString().trim().split("\n").at(-1)}`;
}
