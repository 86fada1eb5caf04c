import { expect, test } from "bun:test";
import { kernelObstacle, needsKernel } from "./kernel_files.ts";

test("files that work on the kernel, also through helpers or a script", () => {
  const onKernel = [
    "plugins/ptp/plugin_test.ts",
    "e2e/restricted_host_test.ts",
    "ffi/netns/named_test.ts",
    "scripts/src/faults/main_test.ts",
  ];
  expect(onKernel.filter((path) => !needsKernel(path))).toEqual([]);
  const others = ["spec/jsonc_test.ts", "cmd/commands/lint_test.ts", "plugins/vrf/plugin_vm_test.ts"];
  expect(others.filter(needsKernel)).toEqual([]);
});

test("the obstacle names each program that is missing", () => {
  expect(kernelObstacle(["sh", "nosuch"])).toBe("nosuch is missing");
  expect(kernelObstacle(["nosuch", "sh", "nosuch2"])).toBe("nosuch, nosuch2 are missing");
  expect(kernelObstacle()).toBe("");
});
