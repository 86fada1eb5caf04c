import { expect, test } from "bun:test";
import { pluginNames } from "../../plugins/registry.ts";
import { testWith } from "../../testing/binary.ts";
import { CNI } from "../commands/registry.ts";
import { formatManPage, listManPages } from "./pages.ts";

const pages = await listManPages(CNI);
const texts = new Map<string, string>(
  await Promise.all(
    pages.map(async (page) => [`${page.name}(${page.section})`, await formatManPage(page, pages)] as const),
  ),
);
const textOf = (page: string): string => texts.get(page)!;

/** As a reader of 80 columns sees it. */
function show(text: string): string {
  const argv = ["man", "--warnings=w", "-l", "-"];
  const env = { PATH: process.env["PATH"]!, MANWIDTH: "80", LC_ALL: "C.UTF-8", MAN_KEEP_FORMATTING: "" };
  const { stdout, stderr } = Bun.spawnSync(argv, { stdin: Buffer.from(text), env });
  expect(stderr.toString()).toBe("");
  return stdout.toString();
}

testWith(["groff"], "groff has no warning about any page", () => {
  const argv = ["groff", "-man", "-ww", "-Tutf8", "-z"];
  for (const [page, text] of texts) {
    expect([page, Bun.spawnSync(argv, { stdin: Buffer.from(text) }).stderr.toString()]).toEqual([page, ""]);
  }
});

testWith(["man"], "man shows what the command objects say", () => {
  const shown = show(textOf("cni-run(8)"));
  expect(shown).toContain("cni-run - attach containers to networks, check and detach them\n");
  expect(shown).toContain("       cni run add NETWORK NETNS [OPTION…]\n");
  expect(shown).toContain("           cni netns add web && cni run add default web -p 8080:80\n");
  expect(shown).toMatch(/\n {7}--conf-dir DIR\n {14}Directory of network configurations/);
  expect(show(textOf("cni.conflist(5)"))).toContain('\n             "name": "default",\n');
});

testWith(["man"], "man shows every key of a plugin, and no Markdown", () => {
  const shown = show(textOf("cni-bridge(8)"));
  for (const key of ["bridge", "vlanTrunk[].minID", "runtimeConfig.mac", "CNI_ARGS MAC"]) {
    expect(shown).toMatch(new RegExp(`\\n {7}${key.replace(/[[\]]/g, "\\$&")}\\s`));
  }
  expect(shown).not.toContain("`");
});

test("there is a page of the program, each command that people call, each plugin, and of networks", async () => {
  const commands = await Promise.all(Object.values(CNI.commands).map(async (load) => (await load()).default));
  const shown = commands.filter((command) => "commands" in command || !command.hidden);
  expect([...texts.keys()]).toEqual([
    ...["cni(8)", ...shown.map(({ name }) => `cni-${name}(8)`)],
    ...["cni.conflist(5)", ...pluginNames().map((name) => `cni-${name}(8)`)],
  ]);
  expect(textOf("cni(8)")).not.toContain("complete\\-words");
});
