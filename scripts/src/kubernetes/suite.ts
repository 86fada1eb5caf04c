/** Kubernetes' own tests of a cluster. @module */
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { ADMIN_KUBECONFIG } from "./directory.ts";
import { clusterEnv, kubectl } from "./kubectl.ts";
import { programDirectory } from "./programs.ts";
import { IMPOSSIBLE_SPECS, SPEC_PARTS, type SpecPart } from "./specs.ts";

/** How many specs run at once: most of what they do is waiting. */
const SUITE_LANES = 4;

/** A spec in the report that ginkgo writes. */
interface SpecReport {
  readonly ContainerHierarchyTexts: readonly string[] | null;
  readonly LeafNodeText: string;
  readonly LeafNodeType: string;
  readonly State: "passed" | "failed" | "skipped" | "timedout" | "panicked" | "interrupted" | "pending" | "aborted";
  /** How many nanoseconds it took. */
  readonly RunTime: number;
  readonly Failure?: { readonly Message: string };
}

/** @param word a name of a part, or a regular expression @returns the exit status */
export async function runSuite(word = "sample"): Promise<number> {
  const part = SPEC_PARTS[word] ?? { focus: word };
  const reports = "/tmp/e2e";
  rmSync(reports, { recursive: true, force: true });
  mkdirSync(reports, { recursive: true });
  const child = Bun.spawn(["ginkgo", ...ginkgoOptions(part, reports), "--", ...await suiteOptions()], {
    cwd: reports,
    env: clusterEnv(),
    stdio: ["ignore", Bun.file(join(reports, "output")), "inherit"],
  });
  await child.exited;
  return tell(part, JSON.parse(readFileSync(join(reports, "report.json"), "utf8"))[0].SpecReports ?? []);
}

const ginkgoOptions = ({ focus, skip }: SpecPart, reports: string): readonly string[] => [
  `--procs=${SUITE_LANES}`,
  `--focus=${focus}`,
  ...[skip, ...IMPOSSIBLE_SPECS.map(({ pattern }) => pattern)].flatMap((pattern) =>
    pattern ? [`--skip=${pattern}`] : []
  ),
  "--timeout=2h",
  "--no-color",
  `--output-dir=${reports}`,
  "--json-report=report.json",
  join(programDirectory(), "e2e.test"),
];

const suiteOptions = async (): Promise<readonly string[]> => [
  `--kubeconfig=${ADMIN_KUBECONFIG}`,
  `--kubectl-path=${join(programDirectory(), "kubectl")}`,
  "--provider=skeleton",
  `--num-nodes=${(await kubectl(["get", "nodes", "-o", "name"])).match(/\S+/g)!.length}`,
  "--disable-log-dump",
];

function tell({ focus, skip }: SpecPart, reports: readonly SpecReport[]): number {
  const specs = reports.filter(({ LeafNodeType }) => LeafNodeType === "It").map((report) => ({
    ...report,
    title: [...report.ContainerHierarchyTexts ?? [], report.LeafNodeText].join(" "),
  }));
  const chosen = specs.filter(({ title }) => new RegExp(focus).test(title) && !(skip && new RegExp(skip).test(title)));
  const [passed, skipped, failed] = [
    chosen.filter(({ State }) => State === "passed"),
    chosen.filter(({ State }) => State === "skipped" || State === "pending"),
    chosen.filter(({ State }) => State !== "passed" && State !== "skipped" && State !== "pending"),
  ] as const;
  for (const { title, RunTime } of passed) console.log(`passed: ${title} (${(RunTime / 1e9).toFixed(1)} s)`);
  for (const { title, Failure } of skipped) {
    const reason = IMPOSSIBLE_SPECS.find(({ pattern }) => new RegExp(pattern).test(title))?.reason;
    console.log(`skipped: ${title} # ${reason ?? Failure?.Message ?? "its own decision"}`);
  }
  for (const { title, Failure } of failed) {
    console.log(`failed: ${title}\n  ${headOf(Failure?.Message ?? "")}`);
  }
  // Of the suite itself, such as a cluster that is not ready.
  const others = reports.filter(({ LeafNodeType, State }) => LeafNodeType !== "It" && State === "failed");
  for (const { LeafNodeType, Failure } of others) console.log(`failed: ${LeafNodeType}: ${Failure?.Message}`);
  const failures = failed.length + others.length + (passed.length === 0 ? 1 : 0);
  if (passed.length === 0) console.log("failed: no test passed");
  console.log(`${passed.length} passed, ${failures} failed, ${skipped.length} skipped`);
  return failures === 0 ? 0 : 1;
}

/** A message may show a whole object of the API. */
const headOf = (message: string): string => message.split("\n").slice(0, 12).join("\n  ");
