/** Options and words that people know from podman, docker and ip. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createEntry } from "../runtime/cache.ts";
import { newCliSandboxes } from "../testing/cli.ts";
import { CNI } from "./commands/registry.ts";

const { root, cni } = newCliSandboxes();
afterAll(() => rmSync(root, { recursive: true }));
const [conf, cache] = [join(root, "net.d"), join(root, "cache")];
const run = (line: string) => cni([...line.split(" "), "--conf-dir", conf, "--cache-dir", cache]);

beforeAll(() => {
  mkdirSync(conf);
  const plugins = [{ type: "bridge", bridge: "br9" }];
  const config = JSON.stringify({ cniVersion: "1.0.0", name: "lan", plugins });
  writeFileSync(join(conf, "lan.conflist"), config);
  createEntry(cache, { network: "lan", containerId: "c1", ifname: "eth0", config, args: [], capabilityArgs: {} });
});

test.each(["run list", "network ls", "network inspect lan", "lint", "doctor lan --look-only", "show"])(
  "cni %s takes --format json for --json",
  (line) => {
    const [json, format] = [run(`${line} --json`), run(`${line} --format json`)];
    expect(format.stdout).toBe(json.stdout);
    expect(() => JSON.parse(json.stdout)).not.toThrow();
    expect(run(`${line} --json --format=JSON`).stdout).toBe(json.stdout);
    expect(run(`${line} --format text`).stdout).toBe(run(line).stdout);
    expect(run(`${line} --json --format text`).stderr).toContain("--json and --format text ask for two formats");
  },
);

test("cni show --json --format dot is refused", () => {
  const { exitCode, stderr } = run("show --json --format dot");
  expect([exitCode, stderr.split("\n")[0]]).toEqual([
    2,
    "cni: --json and --format dot ask for two formats: leave out one of the two",
  ]);
});

test("-q prints names only", () => {
  expect(run("network ls -q").stdout).toBe("default\nlan\n");
  expect(run("run list -q").stdout).toBe("c1\n");
  expect(cni(["netns", "list", "-q"]).exitCode).toBe(0);
  const { exitCode, stderr } = run("run list -q --json");
  expect([exitCode, stderr.split("\n")[0]]).toEqual([
    2,
    "cni: --quiet prints names, and --json a document: leave out one of the two",
  ]);
});

test.each([
  ["network prune -f", 'unknown option "-f"; use "--yes"'],
  ["network prune --force", 'unknown option "--force"; use "--yes"'],
  ["network inspect lan -f json", 'unknown option "-f"; use "--json"'],
  ["network ls -o json", 'unknown option "-o"; use "--json"'],
  ["show -v", 'unknown option "-v"; use "--rules"'],
  ["run check lan c1 -v", 'unknown option "-v"; use "--trace"'],
  ["lint -v", 'unknown option "-v"; the version is "cni version"'],
  ["lint -q", 'unknown option "-q"; results go to stdout, and messages to stderr'],
  ["run del lan c1 -v", "--verbose says what --dry-run prints: give both"],
])("cni %s is refused with the right word", (line, message) => {
  const { exitCode, stdout, stderr } = run(line);
  expect([exitCode, stdout]).toEqual([2, ""]);
  expect(stderr).toStartWith(`cni: ${message}`);
});

test("-f is --force, and -v --verbose", () => {
  expect(run("network rm lan -f --dry-run -v").stdout).toContain("would remove file");
  expect(cni(["-v"]).stdout).toBe(cni(["version"]).stdout);
});

test.each([
  ["run", { list: ["list", "ls"], del: ["del", "rm", "remove", "delete"] }],
  ["netns", { list: ["list", "ls"], add: ["add", "create"], del: ["del", "rm", "remove", "delete"] }],
  ["network", { ls: ["ls", "list"], create: ["create", "add"], rm: ["rm", "del", "remove", "delete"] }],
])("cni %s has the same words as the others, and help shows them", (group, commands) => {
  const help = cni(["--help"]).stdout;
  for (const [name, words] of Object.entries(commands)) {
    const [first] = cni([group, name, "--help"]).stdout.split("\n\n");
    for (const word of words) expect(cni([group, word, "--help"]).stdout.split("\n\n")[0]).toBe(first!);
    const others = words.filter((word) => word !== name).sort();
    const [, listed = ""] = new RegExp(`^  cni ${group} ${name} .*\\(also (.*)\\)$`, "m").exec(help) ?? [];
    expect(listed.split(", ").sort()).toEqual(others);
    const [, own = ""] = /other names:\n {2}(.*)\n/.exec(cni([group, name, "--help"]).stdout) ?? [];
    expect(own.split(", ").sort()).toEqual(others);
    const page = cni(["man", `cni-${group}`]).stdout;
    for (const word of others) expect(page).toContain(word);
  }
});

test("every --force has -f, every --verbose -v, every --quiet -q and every --yes -y", async () => {
  const shorts = { force: "f", verbose: "v", quiet: "q", yes: "y" };
  const groups = [CNI];
  for (const group of groups) {
    for (const load of Object.values(group.commands)) {
      const { default: command } = await load();
      if ("commands" in command) groups.push(command);
      for (const [name, short] of Object.entries(shorts)) {
        const option = command.options?.find((each) => each.name === name);
        if (option) expect([command.name, name, option.short]).toEqual([command.name, name, short]);
      }
    }
  }
});
