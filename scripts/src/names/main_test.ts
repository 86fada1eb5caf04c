import { expect } from "bun:test";
import { testWith } from "../../../testing/binary.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

const PROGRAMS = ["strace", "dnsmasq", "dig", "ip", "nft"];

function tryFaults(...words: string[]): void {
  const argv = [process.execPath, `${REPOSITORY_ROOT}/scripts/src/names/main.ts`, "faults", ...words];
  const { exitCode, stdout } = Bun.spawnSync(argv, { stdin: "ignore", stderr: "inherit" });
  expect(stdout.toString()).not.toContain("FAILED ");
  expect(exitCode).toBe(0);
}

testWith(PROGRAMS, "names are right after faults of their plugin and server: a sample", () => {
  tryFaults("--sample", "4");
}, 120_000);

testWith(PROGRAMS, "the server of names goes on where it gets no descriptor", () => {
  tryFaults("server", "accept4", "EMFILE", "--sample", "2");
}, 120_000);
