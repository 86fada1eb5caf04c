/**
 * Makes the release of the last commit again, as somebody else would: in a clone at another path, as another user, with a clock that is
 * 400 days ahead. The sums must be those of `dist/release`: `scripts/release && scripts/release --reproduce`.
 * @module
 */
import { chmodSync, existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { newScratchDirectory, REPOSITORY_ROOT } from "../repository.ts";

const SUMS = "dist/release/SHA256SUMS";

const AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
const ELSEWHERE = [
  `CNI_PLACE=${process.env["CNI_PLACE"] ?? "none"}`,
  "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
];

/** Throws if the bytes are others. @returns a sentence for people */
export function reproduceRelease(): string {
  const expected = join(REPOSITORY_ROOT, SUMS);
  if (!existsSync(expected)) throw new Error(`Cannot compare: there is no ${SUMS}; run scripts/release first`);
  using scratch = newScratchDirectory();
  chmodSync(scratch.path, 0o755);
  const clone = join(scratch.path, "another checkout");
  run(["git", "clone", "--quiet", "--no-hardlinks", REPOSITORY_ROOT, clone]);
  run(["cp", "-R", join(REPOSITORY_ROOT, "node_modules"), clone]);
  // With a shifted clock, nothing can be downloaded: certificates would have expired.
  run(["mkdir", join(clone, "dist")]);
  for (const name of ["packages", "glibc"]) {
    run(["cp", "-R", join(REPOSITORY_ROOT, "dist", name), join(clone, "dist")]);
  }
  run(["chown", "-R", "65534:65534", scratch.path]);
  const node = ["node", "npm"].map((name) => Bun.which(name)!.replace(/\/[^/]*$/, "")).join(":");
  const script = `PATH=$PATH:${node}; exec "$@"`;
  const environment = ["env", "-i", `HOME=${scratch.path}`, ...ELSEWHERE];
  const command = ["faketime", "-f", "+400d", join(clone, "scripts/release"), "--skip-tests", "--keep-glibc"];
  run([...AS_NOBODY, ...environment, "sh", "-ec", script, "sh", ...command]);
  const [here, there] = [expected, join(clone, SUMS)].map((path) => readFileSync(path, "utf8"));
  if (here === there) return `The same ${here!.trim().split("\n").length} files again`;
  throw new Error(`The second release differs.\ndist/release has\n${here}the second has\n${there}`);
}

function run(command: readonly string[]): void {
  const { success, exitCode } = Bun.spawnSync([...command], { stdout: "inherit", stderr: "inherit" });
  if (!success) throw new Error(`"${command.join(" ")}" ended with ${exitCode}`);
}
