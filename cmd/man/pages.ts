import { builtinDocs, loadPluginDocs } from "../../plugins/docs_registry.ts";
import { findPlugin, loadPlugins, pluginNames } from "../../plugins/registry.ts";
import type { CommandGroup } from "../command.ts";
import { programVersion } from "../../program/version.ts";
import {
  commandOverview,
  commandSections,
  environmentSection,
  examplesSection,
  exitStatusSection,
} from "./command_pages.ts";
import { networkSections, pluginSections } from "./plugin_pages.ts";
import { bold, escapeRoff, header, paragraph, section, tagged } from "./roff.ts";

export interface ManPage {
  readonly name: string;
  readonly section: 5 | 8;
  readonly summary: string;
  sections(): Promise<readonly string[]>;
}

const CONFLIST_PAGE: ManPage = {
  name: "cni.conflist",
  section: 5,
  summary: "configuration of a network",
  sections: () => Promise.resolve(networkSections()),
};

/** The page of the program comes first. */
export async function listManPages(root: CommandGroup): Promise<readonly ManPage[]> {
  await Promise.all([loadPlugins(), loadPluginDocs()]);
  return [programPage(root), ...await commandPages(root), CONFLIST_PAGE, ...pluginNames().map(pluginPage)];
}

/** The text names the other pages. */
export async function formatManPage(page: ManPage, all: readonly ManPage[]): Promise<string> {
  const { name, summary } = page;
  const others = all.filter((other) => other !== page).map((other) => `${bold(other.name)}(${other.section})`);
  return [
    header(name, page.section, programVersion()),
    section("NAME", `${escapeRoff(name)} \\- ${escapeRoff(summary)}`),
    ...await page.sections(),
    section("SEE ALSO", paragraph(others.join(",\n"))),
    "",
  ].filter((text, i, lines) => text !== "" || i === lines.length - 1).join("\n");
}

function programPage(root: CommandGroup): ManPage {
  return {
    name: root.name,
    section: 8,
    summary: lowerFirst(root.summary),
    sections: async () => [
      section("SYNOPSIS", paragraph(`${bold(root.name)} \\fICOMMAND\\fR [\\fIOPTION\\fR\\[u2026]]`)),
      section("DESCRIPTION", paragraph(`${escapeRoff(root.summary)}.`), paragraph(CALLED_AS_PLUGIN)),
      await commandOverview(root),
      pluginOverview(),
      await environmentSection(root),
      FILES,
      examplesSection(root),
      exitStatusSection(),
    ],
  };
}

const CALLED_AS_PLUGIN = "Called by a link with the name of a plugin, it is that plugin.";

const FILES = section(
  "FILES",
  tagged(bold("/etc/cni/net.d"), `Networks, see ${bold("cni.conflist")}(5).`),
  tagged(bold("/opt/cni/bin"), "Plugins of other programs, and links to this one."),
  tagged(bold("/var/lib/cni"), "Results of attachments, and reservations of addresses."),
  tagged(bold("/run/netns"), "Named network namespaces."),
);

function pluginOverview(): string {
  const entries = pluginNames().map((name) => tagged(bold(name), `${escapeRoff(findPlugin(name)!.about)}.`));
  return section("PLUGINS", ...entries);
}

async function commandPages(root: CommandGroup): Promise<ManPage[]> {
  const commands = await Promise.all(Object.values(root.commands).map((load) => load()));
  return commands.map((module) => module.default).filter((command) => "commands" in command || !command.hidden)
    .map((command) => ({
      name: `${root.name}-${command.name}`,
      section: 8,
      summary: command.summary,
      sections: () => commandSections(command, [root.name, command.name]),
    }));
}

function pluginPage(name: string): ManPage {
  const { about } = findPlugin(name)!;
  return {
    name: `cni-${name}`,
    section: 8,
    summary: `plugin that ${lowerFirst(about)}`,
    sections: () => Promise.resolve(pluginSections(about, builtinDocs(name)!)),
  };
}

const lowerFirst = (text: string): string => `${text[0]!.toLowerCase()}${text.slice(1)}`;
