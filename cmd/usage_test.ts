/** How the command line is understood: help, usage errors, and which of its parts is meant. */
import { afterAll, expect, test } from "bun:test";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { pluginNames } from "../plugins/registry.ts";
import { newCliSandboxes } from "../testing/cli.ts";

const { root, cni } = newCliSandboxes();
afterAll(() => rmSync(root, { recursive: true }));

test("cni --help and --version print on stdout and succeed", () => {
  const help = cni(["--help"]);
  expect([help.exitCode, help.stderr]).toEqual([0, ""]);
  for (const word of ["run", "netns", "install", "plugin", ...pluginNames()]) {
    expect(help.stdout).toContain(word);
  }
  expect(cni(["--version"]).stdout).toMatch(/^cni \S+\n.*1\.1\.0\n.*host-local/);
  const document = JSON.parse(cni(["--version", "--json"]).stdout);
  expect(document).toEqual({
    version: "development",
    bun: process.versions.bun,
    supportedVersions: expect.arrayContaining(["0.1.0", "1.1.0"]),
    plugins: expect.arrayContaining(["bridge", "host-local"]),
  });
  expect(cni(["run", "--help"]).stdout).toContain("--publish PORTS");
  for (const command of ["install", "netns", "plugin"]) {
    expect(cni([command, "--help"]).stdout).toContain(`cni ${command}`);
  }
});

test("every command explains itself, by --help and by help", () => {
  for (const words of [["run"], ["run", "add"], ["run", "gc"], ["netns", "exec"], ["install"], ["plugin"], ["help"]]) {
    const asked = cni([...words, "--help"]);
    expect([asked.exitCode, asked.stderr]).toEqual([0, ""]);
    expect(asked.stdout).toStartWith(`usage:\n  cni ${words.join(" ")}`);
    expect(cni(["help", ...words])).toEqual(asked);
  }
  expect(cni(["run", "--ifname", "x", "--help"]).stdout).toStartWith("usage:\n  cni run add ");
  expect(cni(["run", "add", "web", "-h"]).stdout).toStartWith("usage:\n  cni run add NETWORK NETNS");
  expect(cni(["plugin", "bridge", "--help"]).stdout).toContain("plugin bridge:\n  Connects the container to a bridge");
});

const CLUSTER = ["serve", "--cluster", "network", "--node", "a", "--api-server", "https://192.0.2.1"];

test.each([
  [[], "usage:"],
  [["rnu"], 'unknown command "rnu"; did you mean "run"?'],
  [["add", "web"], 'did you mean "run add"?'],
  [["bridge"], "cni plugin bridge"],
  [["ls"], 'did you mean "run ls"?'],
  [["rm", "web"], 'did you mean "run rm"?'],
  [["toString"], 'unknown command "toString"'],
  [["help", "nosuch"], 'unknown command "nosuch"\n     see "cni --help"'],
  [["run"], '"run" needs a command: add, check'],
  [["run", "ad", "web", "blue"], 'unknown command "run ad"; did you mean "add"?'],
  [["run", "add"], '"run add" needs NETWORK, a name'],
  [["run", "add", ""], '"run add" needs NETWORK, a name'],
  [["run", "add", "web"], '"run add" needs NETNS, a network namespace'],
  [["run", "add", "web", ""], '"run add" needs NETNS, a network namespace'],
  [["run", "check", "web"], '"run check" needs NETNS|CONTAINER, a network namespace'],
  [["run", "del", "web"], "--container-id"],
  [["run", "derive"], '"run derive" needs NETWORK'],
  [["run", "add", "web", "blue", "--cap-args", '{"a" 1}'], "--cap-args: Cannot parse JSON:1:6, in a: colon expected"],
  [["run", "gc"], "     for example: cni run gc default --valid web --valid c1/eth1\n"],
  [["run", "gc", "web"], "give --valid ID/IFNAME for each attachment to keep, or --all for none"],
  [["run", "derive", "web", "--valid", "c1"], '"--valid" belongs to "run gc"'],
  [["run", "derive", "web", "--ignore-unknown"], '"--ignore-unknown" belongs to "run gc"'],
  [["run", "derive", "web", "--command", "GC", "--valid", "c1", "--all"], "leave out one of the two"],
  [["run", "derive", "web", "--command", "VERSION"], "--command must be one of ADD, CHECK, DEL, GC, STATUS"],
  [["run", "add", "web", "blue", "--all"], 'option "--all" belongs to "run gc", "run restore", "run derive"'],
  [["run", "add", "web", "blue", "--command", "ADD"], 'option "--command" belongs to "run derive"'],
  [["run", "add", "web", "blue", "--trace-format", "chrome"], "--trace-format belongs to --trace or --trace-file"],
  [["run", "add", "web", "blue", "--timing", "--trace-format", "chrome"], "--trace-format belongs to"],
  [["run", "add", "web", "blue", "--ifnmae", "x"], 'unknown option "--ifnmae"; did you mean "--ifname"?'],
  [["run", "--nosuch", "list"], 'unknown option "--nosuch"'],
  [["run", "add", "web", "blue", "--mac", "xx"], "     for example: --mac 02:00:5e:10:00:01\n"],
  [["network", "create", "x", "--subnet", "10.5.0.0"], "     for example: --subnet 10.5.0.0/24\n"],
  [["network", "rm"], "     for example: cni network rm web\n"],
  [["netns", "ad"], 'did you mean "add"?'],
  [["netns", "add"], '"netns add" needs NAME'],
  [["netns", "add", "--", "-x"], 'that does not begin with "-": got "-x"'],
  [["netns", "add", "a\nb"], 'a name without control characters that does not begin with "-": got "a\\nb"'],
  [["netns", "add", "a", "b"], '"netns add" takes NAME alone: got "a b"'],
  [["netns", "list", "x"], '"netns list" takes no argument: got "x"'],
  [["netns", "exec", "x"], '"netns exec" needs COMMAND, a program and its arguments'],
  [["plugin"], '"plugin" needs PLUGIN'],
  [["plugin", "brigde"], 'did you mean "bridge"?'],
  [["plugin", "bridge", "x"], '"plugin" takes PLUGIN alone: got "bridge x"'],
  [["plugin", "bridge", "--service"], 'plugin "bridge" has no service'],
  [[...CLUSTER, "--vni", "0"], '--vni must be a number from 1 to 16777215: got "0"'],
  [[...CLUSTER, "--tunnel-port", "70000"], '--tunnel-port must be a number from 1 to 65535: got "70000"'],
  [[...CLUSTER, "--tunnel", "maybe"], '--tunnel must be one of auto, always, never: got "maybe"'],
  [[...CLUSTER, "--non-masquerade-cidr", "10.0.0.0/33"], '--non-masquerade-cidr: Cannot parse CIDR "10.0.0.0/33"'],
  [["install"], '"install" needs DIR'],
  [["install", "/tmp", "--froce"], 'did you mean "--force"?'],
])("cni %j is misuse: exit status 2, nothing on stdout", (argv, message) => {
  const { exitCode, stdout, stderr } = cni(argv);
  expect([exitCode, stdout]).toEqual([2, ""]);
  expect(stderr).toContain(message);
  if (argv.length > 0) {
    expect(stderr).toMatch(/^cni: .*\n( {5}(for example|to detach .*): .*\n)* {5}see "cni .*--help"\n$/);
  }
});

test.each([
  [["--json"], '"cni" needs a command: run, '],
  [["help", "--json"], '"--json" belongs to'],
  [["man", "--json"], '"lint", "doctor", "netns", "network", "policy", "show"'],
  [["rnu", "add", "--json"], 'unknown command "rnu"; did you mean "run"?'],
  [["run", "add", "web", "--json"], '"run add" needs NETNS, a network namespace'],
  [["run", "add", "web", "blue", "--json", "--ifnmae", "x"], 'unknown option "--ifnmae"; did you mean "--ifname"?'],
  [["run", "--json", "del", "web"], "--container-id"],
  [["run", "list", "--json=yes", "--json"], 'option "--json" takes no value: got "yes"'],
  [["show", "--format", "json", "a", "b"], '"show" takes [NETWORK|NETNS|CONTAINER] alone: got "a b"'],
])("cni %j is misuse that is reported as JSON too", (argv, message) => {
  const { exitCode, stdout, stderr } = cni(argv);
  const { code, msg, details } = JSON.parse(stdout);
  expect([exitCode, code, msg]).toEqual([2, 4, expect.stringContaining(message)]);
  expect(stderr).toBe(`cni: ${msg}\n     ${details.replaceAll("; ", "\n     ")}\n`);
});

test("words of another program ask for no JSON", () => {
  expect(cni(["run", "add", "web", "--", "--json"]).stdout).toBe("");
});

test("options may stand before the command that they are for", () => {
  const dir = join(root, "none");
  const expected = cni(["run", "list", "--json", "--cache-dir", dir]);
  expect(expected).toEqual({ exitCode: 0, stdout: "[]\n", stderr: "" });
  expect(cni(["run", "--json", "--cache-dir", dir, "list"])).toEqual(expected);
  expect(cni(["run", "--cache-dir", dir, "list", "--publish", "1:1", "--json"])).toEqual(expected);
});

test("a reader that goes away ends a command quietly", () => {
  // More than a pipe holds.
  const { stdout, stderr } = cni(["schema"], { wrapper: ["sh", "-c", '{ "$@"; echo $? >&2; } | head -n 1', "sh"] });
  expect([stdout, stderr]).toEqual(["{\n", "0\n"]);
});

test("cni called as a plugin that is not there answers with an error object", () => {
  const { exitCode, stdout } = cni([], { env: { CNI_COMMAND: "ADD" } });
  expect(exitCode).toBe(1);
  const { code, details } = JSON.parse(stdout);
  expect([code, details]).toEqual([7, `built in are ${pluginNames().join(", ")}`]);
});

test("cni plugin runs a plugin as its link would", () => {
  const { exitCode, stdout } = cni(["plugin", "bridge"], {
    env: { CNI_COMMAND: "VERSION" },
    stdin: '{"cniVersion":"0.4.0"}',
  });
  expect(exitCode).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({
    cniVersion: "0.4.0",
    supportedVersions: expect.arrayContaining(["1.1.0"]),
  });
});
