import { commonDifferences, commonKeys } from "../../plugins/lib/docs/common_docs.ts";
import { formatJson, formatKeyExample, isKeyFromCaller } from "../../plugins/lib/docs/format_json.ts";
import { listKeys } from "../../plugins/lib/docs/list_docs.ts";
import type { KeyDocs, PluginDocs } from "../../plugins/lib/docs/plugin_docs.ts";
import { DEFAULT_NETWORK } from "../../runtime/default_network.ts";
import { bold, bulleted, escapeRoff, markdownToRoff, paragraph, section, tagged, verbatim } from "./roff.ts";

// Wide enough for 80 columns with two indentations.
const MAX_COLUMNS = 66;

type Keys = Readonly<Record<string, KeyDocs>>;

export function pluginSections(about: string, { example, keys, absent = {}, differences }: PluginDocs): string[] {
  const own = (isWanted: (path: string) => boolean) =>
    Object.fromEntries(Object.entries(keys).filter(([path]) => isWanted(path)));
  const unread = Object.entries(absent).map(([key, reason]) => `\`${key}\` is not read: ${reason}.`);
  return [
    section("SYNOPSIS", verbatim(formatJson(example, MAX_COLUMNS))),
    section(
      "DESCRIPTION",
      paragraph(`${escapeRoff(about)}.`),
      paragraph(markdownToRoff("The synopsis is an entry of `plugins` in a network, see `cni.conflist`(5).")),
    ),
    section("KEYS", ...keyEntries(own((path) => !isKeyFromCaller(path)))),
    section("KEYS OF RUNTIMECONFIG, ARGS AND CNI_ARGS", ...keyEntries(own(isKeyFromCaller))),
    section(
      "DIFFERENCES FROM THE GO PLUGIN",
      ...[...differences, ...unread].map((text) => bulleted(markdownToRoff(text))),
    ),
  ];
}

export function networkSections(): string[] {
  return [
    section("SYNOPSIS", paragraph(escapeRoff("/etc/cni/net.d/*.conflist"))),
    section(
      "DESCRIPTION",
      paragraph(
        "Each file is a network: a JSON object with a name and a list of plugins. Comments and trailing commas are for files that only cni reads: containerd and podman cannot read them.",
      ),
      paragraph(
        `Files are read in the order of their names, those that end with ${
          bold(".conflist")
        } first. A file that ends with ${bold(".conf")} or ${bold(".json")} may hold one plugin instead of a list.`,
      ),
    ),
    section("KEYS OF A NETWORK", ...keyEntries(listKeys)),
    section("KEYS OF EVERY PLUGIN", ...keyEntries(commonKeys)),
    section("DIFFERENCES FROM THE GO PLUGINS", ...commonDifferences.map((text) => bulleted(markdownToRoff(text)))),
    section("EXAMPLES", paragraph("The network default is built in:"), verbatim(DEFAULT_NETWORK.trimEnd())),
  ];
}

function keyEntries(keys: Keys): string[] {
  return Object.entries(keys).map(([path, docs]) => tagged(bold(path), keyText(path, docs)));
}

function keyText(path: string, { type, default: byDefault, meaning, example, since, deprecated }: KeyDocs): string {
  const facts = [
    `Type: ${markdownToRoff(type)}.`,
    byDefault === undefined ? "Required." : `Default: ${markdownToRoff(byDefault)}.`,
    ...example === undefined ? [] : [`Example: ${bold(formatKeyExample(path, example))}.`],
    ...since === undefined ? [] : [`Since ${escapeRoff(since)}.`],
    ...deprecated === undefined ? [] : [`Deprecated: ${markdownToRoff(deprecated)}.`],
  ];
  return `${markdownToRoff(meaning)}\n.br\n${facts.join("\n")}`;
}
