import { expect, test } from "bun:test";
import { chmodSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { useDirectory } from "../../../testing/directory.ts";

const directory = useDirectory("cni-glibc-");

test.each(["update", "download"])("packages stay where the archive is away: apt-get %s fails", (failing) => {
  const home = join(directory, failing);
  const packages = join(home, "glibc");
  mkdirSync(join(packages, "amd64"), { recursive: true });
  const apt = join(home, "apt-get");
  writeFileSync(apt, `#!/bin/sh\ncase " $* " in *" ${failing} "*) exit 100 ;; esac\n`);
  chmodSync(apt, 0o755);
  const call = `import { renewGlibc } from ${JSON.stringify(join(import.meta.dir, "glibc.ts"))};
    renewGlibc(${JSON.stringify(packages)});`;
  const env = { ...process.env, PATH: `${home}:${process.env["PATH"]}` };
  const { exitCode, stderr } = Bun.spawnSync([process.execPath, "-e", call], { env, stderr: "pipe" });
  expect(exitCode).toBe(1);
  expect(stderr.toString()).toContain("apt-get");
  expect(readdirSync(packages)).toEqual(["amd64"]);
  expect(readdirSync(home).sort()).toEqual(["apt-get", "glibc"]);
});
