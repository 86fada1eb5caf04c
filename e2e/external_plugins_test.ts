import { expect, test } from "bun:test";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { useDirectory } from "../testing/directory.ts";
import { CNI_UNDER_TEST, finishedProcess, SERVER_ENV } from "../testing/binary.ts";

const root = useDirectory("cni-foreign-");
const programs = join(root, "bin");
const networks = join(root, "net.d");
mkdirSync(programs);
mkdirSync(networks);
const network = (name: string, plugin: object) =>
  writeFileSync(join(networks, `${name}.conflist`), JSON.stringify({ cniVersion: "1.1.0", name, plugins: [plugin] }));
const program = (name: string, script: string) =>
  writeFileSync(join(programs, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });

/** Runs `cni run` with an environment in which everything is set that could confuse a plugin. */
function cni(...args: readonly string[]) {
  const env = {
    PATH: "/usr/bin:/bin",
    NETCONFPATH: networks,
    CNI_PATH: programs,
    CNI_CONTAINERID: "stray",
    CNI_COMMAND: "",
    CNI_VERSION: "9",
    CNI_OTHER: "stray",
    CNI_NETNS_OVERRIDE: "1",
    BUN_OPTIONS: "--version",
    BUN_CONFIG_REGISTRY: "stray",
    TRACEPARENT: "00-1",
    ...SERVER_ENV,
  };
  const child = Bun.spawnSync([CNI_UNDER_TEST, "run", ...args, "--cache-dir", join(root, "cache")], { env, cwd: "/" });
  return finishedProcess(child);
}

/** What a script left with `env >`. */
function environmentIn(file: string): Record<string, string> {
  const lines = readFileSync(join(root, file), "utf8").trimEnd().split("\n").map((line) => line.split("="));
  const { PWD: _, SHLVL: __, ...env } = Object.fromEntries(lines.map(([name, ...value]) => [name, value.join("=")]));
  return env;
}

const inherited = { PATH: "/usr/bin:/bin", NETCONFPATH: networks, CNI_NETNS_OVERRIDE: "1", TRACEPARENT: "00-1" };
const none = { CNI_CONTAINERID: "", CNI_NETNS: "", CNI_IFNAME: "", CNI_ARGS: "", CNI_PATH: programs };

test("a program of somebody else gets all six variables, and no other of ours or of Bun's", () => {
  program("foreign", `env >${root}/env`);
  network("own", { type: "foreign" });
  expect(cni("status", "own")).toMatchObject({ exitCode: 0 });
  expect(environmentIn("env")).toEqual({ ...inherited, ...none, CNI_COMMAND: "STATUS" });
  program("foreign", `env >${root}/env-$CNI_COMMAND; exit 1`);
  const netns = `/proc/${process.pid}/ns/net`;
  expect(cni("add", "own", netns, "--container-id", "c1", "-i", "foreign0").exitCode).toBe(1);
  const attachment = { CNI_CONTAINERID: "c1", CNI_NETNS: netns, CNI_IFNAME: "foreign0" };
  for (const command of ["ADD", "DEL"]) {
    expect(environmentIn(`env-${command}`)).toEqual({ ...inherited, ...none, ...attachment, CNI_COMMAND: command });
  }
});

test("one that a plugin in this process delegates to gets the same", () => {
  program("pool", `env >${root}/delegated; cat >${root}/request`);
  network("delegating", { type: "bridge", bridge: "cni-absent", ipam: { type: "pool" } });
  expect(cni("status", "delegating")).toMatchObject({ exitCode: 0 });
  expect(environmentIn("delegated")).toEqual({ ...inherited, ...none, CNI_COMMAND: "STATUS" });
  expect(JSON.parse(readFileSync(join(root, "request"), "utf8"))).toMatchObject({
    name: "delegating",
    type: "bridge",
    bridge: "cni-absent",
    ipam: { type: "pool" },
  });
});

test("its failure names it and says what it said, which also was passed on", () => {
  program("broken", "echo 'cannot open the pool' >&2; exit 3");
  network("broken", { type: "broken" });
  const { exitCode, stdout, stderr } = cni("status", "broken", "--json");
  expect(exitCode).not.toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({
    code: 999,
    msg: 'plugin "broken" (STATUS): Plugin "broken" failed without an error object: it ended with status 3',
    details: `it said "cannot open the pool"; its program is "${programs}/broken"`,
  });
  expect(stderr).toStartWith("cannot open the pool\n");
});

test("it has the time it is given", () => {
  program("slow", "sleep 30");
  network("slow", { type: "slow" });
  const { stdout } = cni("status", "slow", "--json", "--timeout", "50ms");
  expect(JSON.parse(stdout)).toMatchObject({ code: 11, msg: expect.stringContaining("did not end within 50 ms") });
});

test("a mistyped one is named, with the plugin it may have been meant to be", () => {
  network("mistyped", { type: "brigde" });
  const { stdout } = cni("status", "mistyped", "--json");
  expect(JSON.parse(stdout)).toMatchObject({
    code: 7,
    details: `looked in ${programs}; did you mean "bridge"?`,
  });
});
