import { expect } from "bun:test";
import { testWith } from "../../../testing/binary.ts";
import { CRI_PROGRAMS } from "../../../testing/cri.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

testWith(CRI_PROGRAMS, "pods leave nothing, whatever happens to containerd, the node and the configuration", () => {
  const argv = [process.execPath, `${REPOSITORY_ROOT}/scripts/src/cri/main.ts`, "--pods", "2", "--rounds", "1"];
  const { exitCode, stdout } = Bun.spawnSync(argv, { stdin: "ignore", stderr: "inherit" });
  const output = stdout.toString();
  expect(exitCode === 0 ? "" : output).toBe("");
  expect(output).toMatch(/^burst: 2 pods were ready/m);
  expect(output).toMatch(/^kill: [12] of 2 pods were ready/m);
  expect(output).toMatch(/^restart: 2 pods came back/m);
  expect(output).toMatch(/^change: .* with another name, all 2,/m);
}, 120_000);
