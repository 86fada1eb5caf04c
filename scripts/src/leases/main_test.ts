import { expect } from "bun:test";
import { testWith } from "../../../testing/binary.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

testWith(["strace", "dnsmasq", "kea-dhcp4"], "leases outlive kills and upgrades of their server: a sample", () => {
  const options = ["many", "kills", "upgrade", "--containers", "8", "--from", "40", "--to", "42"];
  const argv = [process.execPath, `${REPOSITORY_ROOT}/scripts/src/leases/main.ts`, ...options];
  const { exitCode, stdout } = Bun.spawnSync(argv, { stdin: "ignore", stderr: "inherit" });
  expect(stdout.toString()).toMatch(
    /^many: 8 containers .*\nkills: .* 40 to 42 .*: nothing was left\nupgrade: 8 leases .*\nno problem\n$/,
  );
  expect(exitCode).toBe(0);
}, 120_000);
