/** Test files that work on the kernel of this machine, by what they and their helpers say. Where they cannot, the others run. @module */
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { isForTests, REPOSITORY_ROOT } from "../repository.ts";
import { isForVmOnly } from "./vm_lane.ts";

/** Each test on the kernel may use these; of others, a test says that it needs them. */
const PROGRAMS = ["unshare", "ip", "nft", "busybox", "conntrack"];
const MAKES_NAMESPACES = /\bcreateNetns\(|"unshare"|\bunshare -|\bmount -/;
/** What these call makes or enters namespaces, or gives up rights of root. */
const BY_THE_PRODUCT: readonly string[] = [
  "e2e/external_plugins_test.ts",
  "ffi/sys/confinement_test.ts",
  "server/warm_up_test.ts",
];

/** Why no test can work on the kernel here; nothing if it can. */
export function kernelObstacle(programs: readonly string[] = PROGRAMS): string {
  if (process.getuid!() !== 0) return "only root may make namespaces";
  const missing = programs.filter((program) => !Bun.which(program));
  if (missing.length > 0) return `${missing.join(", ")} ${missing.length > 1 ? "are" : "is"} missing`;
  const { success } = Bun.spawnSync(["unshare", "--mount", "--net", "--pid", "--fork", "true"]);
  return success ? "" : "namespaces are refused";
}

const scanner = new Bun.Transpiler({ loader: "ts" });

/** Those of a machine of their own count as the others: they need nothing of this one. */
export const needsKernel = (path: string): boolean =>
  !isForVmOnly(path) && (BY_THE_PRODUCT.includes(path) || makesNamespaces(path, new Set()));

function makesNamespaces(path: string, seen: Set<string>): boolean {
  if (seen.has(path) || !isForTests(path)) return false;
  seen.add(path);
  const source = readFileSync(join(REPOSITORY_ROOT, path), "utf8");
  if (MAKES_NAMESPACES.test(source)) return true;
  // The test of a script starts it.
  const tested = path.replace("_test.ts", ".ts");
  const imported = scanner.scanImports(source).map(({ path }) => path).filter((name) => name.startsWith("."))
    .map((name) => join(dirname(path), name));
  return [tested, ...imported].some((file) => existsSync(join(REPOSITORY_ROOT, file)) && makesNamespaces(file, seen));
}
