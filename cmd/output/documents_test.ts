/** docs/output.md says which keys the documents of commands have. The commands say it too. */
import { afterAll, expect, test } from "bun:test";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { newCliSandboxes } from "../../testing/cli.ts";
import { netnsTest } from "../../testing/netns.ts";
import type { CommandGroup } from "../command.ts";
import { CNI } from "../commands/registry.ts";

const { root, cni, bench } = newCliSandboxes();
afterAll(() => rmSync(root, { recursive: true }));

const PAGE = await Bun.file(join(import.meta.dir, "../../docs/output.md")).text();

/** Names of commands, and what they print. */
const TABLE = PAGE.split("\n").filter((line) => line.startsWith("| ")).map((line) => line.split("|").slice(1));

/** The keys in the table's row. */
function documentedKeys(command: string): string[] {
  const document = TABLE.find(([names = ""]) => names.includes(`\`cni ${command}\``))![1];
  return [...document!.matchAll(/"(\w+)"/g)].map(([, key]) => key!).sort();
}

/** Each key of the document and the objects in it, once. */
function keysOf(value: unknown): string[] {
  if (typeof value !== "object" || value === null) return [];
  const inner = Object.values(value).flatMap(keysOf);
  return [...new Set([...Array.isArray(value) ? [] : Object.keys(value), ...inner])].sort();
}

netnsTest("documents of cni run have the keys that the page names", ({ host, container }) => {
  const { run, network } = bench(host);
  network("web");
  const words = `web ${container.path} --container-id c1`;
  expect(run(`add ${words}`).exitCode).toBe(0);
  const calls = { restore: "web", check: words, status: "web", gc: "web --all", del: words };
  for (const [command, argv] of Object.entries(calls)) {
    const { stdout } = run(`${command} ${argv} --json`);
    expect([command, keysOf(JSON.parse(stdout))]).toEqual([command, documentedKeys(`run ${command}`)]);
  }
});

test("documents of netns list and install have the keys that the page names", () => {
  const mount = 'mount -t tmpfs tmpfs /run && mkdir /run/netns && touch /run/netns/web && exec "$@"';
  const listed = cni(["netns", "list", "--json"], { wrapper: ["unshare", "-m", "sh", "-c", mount, "sh"] });
  expect(keysOf(JSON.parse(listed.stdout))).toEqual(documentedKeys("netns list"));
  const directory = join(root, "bin");
  mkdirSync(directory);
  writeFileSync(join(directory, "bridge"), "another program");
  const installed = cni(["install", directory, "--no-shim", "--force", "--json"]);
  expect(keysOf(JSON.parse(installed.stdout))).toEqual(documentedKeys("install"));
});

test("keys that others choose do not control the terminal", () => {
  const directory = join(root, "odd");
  const key = "k\u009b31m\u202e\u2028\u{e0041}x";
  mkdirSync(directory);
  const file = join(directory, "10-odd.conflist");
  writeFileSync(file, JSON.stringify({ cniVersion: "1.1.0", name: "odd", [key]: 1, plugins: [{ type: "loopback" }] }));
  for (const argv of [["lint", "--json", file], ["network", "inspect", "odd", "--json", "--conf-dir", directory]]) {
    const { stdout } = cni(argv);
    expect(stdout.match(/[^\P{C}\n]|\p{Zl}/gu)).toBeNull();
    expect(JSON.stringify(JSON.parse(stdout))).toContain(key);
  }
});

/** Commands that take `--json`, without those of a group that ignores it. */
async function namesWithJson({ commands }: CommandGroup, path: readonly string[] = []): Promise<string[]> {
  const found: string[] = [];
  for (const load of Object.values(commands)) {
    const { default: command } = await load();
    const words = [...path, command.name];
    if ("commands" in command) found.push(...await namesWithJson(command, words));
    else if (command.options.some(({ name }) => name === "json")) found.push(words.join(" "));
  }
  return found;
}

test("the page names each command that takes --json", async () => {
  const always = ["run add", "run restore", "run derive"];
  const names = (await namesWithJson(CNI)).filter((name) => !always.includes(name));
  expect(names.length).toBeGreaterThan(10);
  const table = TABLE.map(([names]) => names).join();
  expect(names.filter((name) => !new RegExp(`\`cni ${name}( |\`)`).test(table))).toEqual([]);
});
