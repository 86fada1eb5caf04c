/** Tests in the virtual machine. Outcomes come back line by line, so that they count even if the machine fails. @module */
import type { TestCase } from "./junit.ts";

/** Whether a test file cannot run on this machine, since its kernel may lack something. */
export const isForVmOnly = (path: string): boolean => /_vm_test\.ts$/.test(path);

/** Whether a test file is run in the virtual machine. One runs here and there: that kernel is an older one. */
export const isForVm = (path: string): boolean => isForVmOnly(path) || path === "e2e/distroless_test.ts";

/** Whether it is run with the oldest kernel as well: each plugin from ADD to GC, and a chain with traffic, by the compiled binary. */
export const isForOldest = (path: string): boolean => /^e2e\/(every_plugin|chain)_vm_test\.ts$/.test(path);

/**
 * What depends on the processor: numbers of system calls, layouts of structures, the runtime inside, the shim. The tests of what is
 * compiled from C, `scripts/src/build/{start_code,shim}_test.ts`, need a compiler; on a machine that has one they are for both processors.
 */
const FOR_ARM64 = /^(ffi\/|e2e\/serve\/|e2e\/(hardening|hosts|restricted_host|unexpected_error)_test)/;

/** Whether it is run on the other processor. */
export const isForArm64 = (path: string): boolean => isForVm(path) || FOR_ARM64.test(path);

/** In longer runs than the usual one, the longest first. The start code and the runtime are in each call of the compiled binary. */
export const ARM64_SAMPLE: readonly string[] = [
  // The whole chain.
  "e2e/chain_vm_test.ts",
  // The shim and the server, by a plugin.
  "e2e/serve/calls_test.ts",
  "e2e/every_plugin_vm_test.ts",
  // Numbers of system calls.
  "ffi/sys/confinement_test.ts",
  // Layouts of structures.
  "ffi/sys/file_test.ts",
  "ffi/netns/netns_test.ts",
  "ffi/route/link_test.ts",
  "ffi/nft/objects_test.ts",
];

export const caseLine = ({ name, outcome }: TestCase): string => `${outcome}: ${name}`;

export function formatSums(cases: readonly TestCase[]): string {
  const count = (wanted: string) => cases.filter(({ outcome }) => outcome === wanted).length;
  return ["passed", "failed", "skipped"].map((outcome) => `${count(outcome)} ${outcome}`).join(", ");
}

export const isSum = (line: string): boolean => /^\d+ passed, \d+ failed, \d+ skipped$/.test(line);

/** Reads the output of a run in the virtual machine. If it came to its end, its sums are those of its lines. */
export function parseLane(output: string): { readonly cases: readonly TestCase[]; readonly isComplete: boolean } {
  const cases = [...output.matchAll(/^(passed|failed|skipped): (.*)/gm)].map(([, outcome, name]) => ({
    name: name!,
    outcome: outcome as TestCase["outcome"],
  }));
  return { cases, isComplete: output.trimEnd().split("\n").at(-1) === formatSums(cases) };
}
