import { expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createEntry } from "../../runtime/cache.ts";
import { useDirectory } from "../../testing/directory.ts";
import { cliContext } from "../../testing/cli.ts";
import type { Command, CommandGroup } from "../command.ts";
import { CNI } from "../commands/registry.ts";
import type { OptionSpec } from "../options.ts";
import { withUsualOptions } from "../usual_options.ts";
import { findCandidates, kindsOf } from "./candidates.ts";
import { completeWords } from "./complete.ts";

const root = useDirectory("cni-complete-");
const [conf, cache] = [join(root, "conf"), join(root, "cache")];
mkdirSync(conf);
for (const name of ["web", "db"]) {
  writeFileSync(join(conf, `${name}.conflist`), JSON.stringify({ name, plugins: [{ type: "bridge" }] }));
}
writeFileSync(join(conf, "broken.conflist"), "{");
for (const [network, containerId] of [["web", "c1"], ["db", "c2"]] as const) {
  createEntry(cache, { network, containerId, ifname: "eth0", config: "", args: [], capabilityArgs: {} });
}

/** @param line behind `cni`, up to the cursor */
async function complete(line: string): Promise<string> {
  const { candidates, paths } = await completeWords(CNI, line.split(" "), cliContext({ NETCONFPATH: conf }));
  return [...candidates.map(({ word }) => word), ...paths === "none" ? [] : [paths]].join(" ");
}

test.each([
  ["ins", "install"],
  ["nosuch ", ""],
  ["run lis", "list"],
  ["run rm ", "db web default"],
  ["netns ex", "exec"],
  ["run add ", "db web default"],
  ["run add w", "web"],
  ["run add -- w", "web"],
  ["run add ./w", "files"],
  ["run --conf-dir /nowhere list ", "default"],
  ["run list --conf-dir=/nowhere ", "default"],
  ["run list --conf-di", "--conf-dir"],
  ["run list --conf-dir ", "directories"],
  ["run list --conf-dir=", "directories"],
  ["run list web ", ""],
  ["run derive --command D", "DEL"],
  ["run derive --command=D", "--command=DEL"],
  ["run add -p 80:80 w", "web"],
  ["run add -p80:80 w", "web"],
  ["run add web /run/netns/x extra ", ""],
  [`run del web --cache-dir ${cache} --container-id `, "c1"],
  [`run gc db --cache-dir ${cache} --valid `, "c2/eth0"],
  [`run gc db --cache-dir ${cache} --valid c1`, ""],
  ["plugin host-", "host-device host-local"],
  ["serve --log-format ", "text json"],
  ["completion ", "bash zsh fish"],
  ["lint --disable shared-s", "shared-subnet"],
  ["help run de", "del derive"],
  ["help nosuch ", ""],
  ["install /op", "directories"],
  ["complete", ""],
  ["netns exec web cmd --he", "files"],
  ["network ls --format ", "text json"],
  ["network ls --format=j", "--format=json"],
  ["show --format ", "text json dot svg"],
])("completes %j", async (line, expected) => {
  expect(await complete(line)).toBe(expected);
});

/** Each command that people call, with the groups around it. */
async function listCommands(group: CommandGroup, path: readonly string[] = [], outer: readonly OptionSpec[] = []) {
  const found: { path: readonly string[]; command: Command | CommandGroup; options: readonly OptionSpec[] }[] = [];
  for (const load of Object.values(group.commands)) {
    const { default: command } = await load();
    if ("hidden" in command) continue;
    const words = [...path, command.name];
    const options = withUsualOptions([...command.options ?? [], ...outer]);
    found.push({ path: words, command, options });
    if ("commands" in command) found.push(...await listCommands(command, words, options));
  }
  return found;
}

test("every command and every option of the registry is offered", async () => {
  const commands = await listCommands(CNI);
  expect(commands.length).toBeGreaterThan(30);
  for (const { path, command, options } of commands) {
    const before = path.slice(0, -1).map((word) => `${word} `).join("");
    expect((await complete(before)).split(" ")).toContain(command.name);
    const names = new Set(options.map(({ name }) => `--${name}`));
    expect((await complete(`${path.join(" ")} --`)).split(" ").sort()).toEqual([...names, "--help"].sort());
  }
});

test("every value that has a known set of words is offered", async () => {
  const values = (await listCommands(CNI)).flatMap(({ command, options }) => [
    ...options.flatMap(({ value, completion, choices }) => value && !completion && !choices ? [value] : []),
    ..."arguments" in command
      ? command.arguments.flatMap(({ name, completion, choices }) => completion || choices ? [] : [name])
      : [],
  ]);
  const free = [...new Set(values)].filter((name) => kindsOf(name).every((kind) => kind === "nothing"));
  // Text, numbers, and names that are new.
  const known = [
    "ADDRESS",
    "FROM",
    "IFNAME",
    "IP",
    "JSON",
    "K=V",
    "K=V;K=V",
    "MAC",
    "NAME",
    "NUMBER",
    "PORT",
    "PORTS",
    "SUBNET",
    "TIME",
    "TO",
    "URL",
  ];
  expect(free.filter((name) => !known.includes(name))).toEqual([]);
});

test("keys of plugins follow a dot", async () => {
  expect(kindsOf("PLUGIN")).toEqual(["plugin"]);
  const request = { root: CNI, findDirectory: () => "" };
  const keys = await findCandidates("key", { ...request, current: "tuning.s" });
  expect(keys).toContainEqual({ word: "tuning.sysctl", about: expect.any(String) });
  const words = (await findCandidates("key", { ...request, current: "bridge." })).map(({ word }) => word);
  expect(words).toContain("bridge.vlanTrunk.minID");
  expect(words).toContain("bridge.CNI_ARGS.MAC");
  expect(await findCandidates("key", { ...request, current: "nosuch." })).toEqual([]);
  expect(await findCandidates("key", { ...request, current: "tun" })).toContainEqual({
    word: "tuning",
    about: expect.any(String),
  });
});
