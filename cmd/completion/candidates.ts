import { listNamedNetns } from "../../ffi/netns/named.ts";
import { findPlugin, loadPlugins, pluginNames } from "../../plugins/registry.ts";
import { EngineNames, shortContainerId } from "../../containers/engine_names.ts";
import { listNetworkNames } from "../../runtime/load.ts";
import { listRememberedAttachments } from "./remembered_attachments.ts";
import { CACHE_DIR_OPTION, CONF_DIR_OPTION } from "../arguments/runtime.ts";
import type { CommandGroup } from "../command.ts";
import type { CompletionKind, OptionSpec, ValueName } from "../options.ts";

export interface Candidate {
  readonly word: string;
  /** Shells show it beside the word. */
  readonly about?: string;
}

export interface CandidateRequest {
  /** The part of the word that is typed already. */
  readonly current: string;
  readonly root: CommandGroup;
  /** The line's, if it is typed already. */
  readonly network?: string;
  /** Finds the last value on the line, or the environment's; absolute. */
  findDirectory(option: OptionSpec, byDefault: string): string;
}

type Source = (request: CandidateRequest) => readonly Candidate[] | Promise<readonly Candidate[]>;

const SOURCES: Readonly<Partial<Record<CompletionKind, Source>>> = {
  network: ({ findDirectory }) => [
    ...listNetworkNames(findDirectory(CONF_DIR_OPTION, "/etc/cni/net.d")).map((word) => ({ word })),
    { word: "default", about: "built in" },
  ],
  netns: () => listNamedNetns().map((word) => ({ word })),
  container: (request) =>
    listAttachments(request).map(({ containerId, name, ifname }) => ({
      word: containerId,
      about: name === undefined ? ifname : `${name}, ${ifname}`,
    })),
  "named-container": (request) =>
    listAttachments(request).flatMap(({ containerId, name, ifname }) =>
      name === undefined
        ? [{ word: containerId, about: ifname }]
        : [{ word: name, about: shortContainerId(containerId) }, { word: containerId, about: name }]
    ),
  attachment: (request) =>
    listAttachments(request).map(({ containerId, name = containerId, ifname }) => ({ word: `${name}/${ifname}` })),
  page: async ({ root }) => {
    const { listManPages } = await import("../man/pages.ts");
    return (await listManPages(root)).map(({ name, summary }) => ({ word: name, about: summary }));
  },
  plugin: listPlugins,
  rule: async () => (await import("../../networks/lint/lint.ts")).lintRuleNames().map((word) => ({ word })),
  key: ({ current }) => current.includes(".") ? listKeys(current) : listPlugins(),
};

/** Each comes once, in no order. */
export async function findCandidates(kind: CompletionKind, request: CandidateRequest): Promise<readonly Candidate[]> {
  const all = await SOURCES[kind]?.(request) ?? [];
  return all.filter(({ word }, i) => all.findIndex((other) => other.word === word) === i);
}

function listAttachments({ network, findDirectory }: CandidateRequest) {
  const names = new EngineNames();
  return listRememberedAttachments(findDirectory(CACHE_DIR_OPTION, "/var/lib/cni"), network).map((attachment) => {
    const name = names.find(attachment);
    return { ...attachment, ...name !== undefined && { name } };
  });
}

async function listPlugins(): Promise<readonly Candidate[]> {
  await loadPlugins();
  return pluginNames().map((word) => ({ word, about: findPlugin(word)!.about }));
}

/** Makes `bridge.mtu`, without the marks of lists: shells would quote them. */
async function listKeys(current: string): Promise<readonly Candidate[]> {
  const { builtinDocs, loadPluginDocs } = await import("../../plugins/docs_registry.ts");
  await loadPluginDocs();
  const plugin = current.slice(0, current.indexOf("."));
  const keys = Object.entries(builtinDocs(plugin)?.keys ?? {});
  return keys.map(([key, { meaning }]) => ({
    word: `${plugin}.${key.replaceAll("[]", "").replace(" ", ".")}`,
    about: meaning,
  }));
}

const KINDS: Readonly<Partial<Record<string, CompletionKind>>> = {
  CONTAINER: "named-container",
  DIR: "directory",
  DIRS: "directory",
  FILE: "file",
  ID: "container",
  "ID[/IFNAME]": "attachment",
  NETNS: "netns",
  NETWORK: "network",
  PAGE: "page",
  PATH: "file",
  PLUGIN: "plugin",
  RULE: "rule",
};

/** `NETWORK|NETNS` has two; a name such as `PLUGIN[.KEY]` is for keys of plugins. */
export function kindsOf(name: ValueName): readonly CompletionKind[] {
  return name.split("|").map((part) => KINDS[part] ?? (part.startsWith("PLUGIN") ? "key" : "nothing"));
}
