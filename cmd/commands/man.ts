import { printStdout } from "../../ffi/sys/stdio.ts";
import { suggestion } from "../../spec/suggest.ts";
import { log } from "../arguments/runtime.ts";
import type { Command } from "../command.ts";
import { formatManPage, listManPages, type ManPage } from "../man/pages.ts";
import { UsageError } from "../../program/usage_error.ts";
import { openScreen } from "../output/screen.ts";

const LIST_OPTION = { name: "list", help: "print the names of all pages, one per line" };

const man: Command = {
  name: "man",
  summary: "print a man page, in roff",
  description:
    "There is a page of the program, of each command and plugin, and of network configurations: cni.conflist.",
  arguments: [{
    name: "PAGE",
    help: 'a page such as "cni-run", or what it is of: "run", "bridge"; by default "cni"',
    optional: true,
  }],
  options: [LIST_OPTION],
  examples: [
    { command: "man -l <(cni man bridge)", about: "read the page of the plugin bridge" },
    { command: "cni man cni-run >/usr/local/share/man/man8/cni-run.8", about: "install a page" },
  ],
  async run({ words: [word = "cni"], has }, { root, env }) {
    const pages = await listManPages(root);
    if (has(LIST_OPTION.name)) return printStdout(pages.map((page) => `${fileName(page)}\n`).join(""));
    const page = pages.find((candidate) => namesOf(candidate).includes(word));
    if (page) {
      printStdout(await formatManPage(page, pages));
      if (openScreen(1, env).isTerminal) log(`That was roff; to read the page: man -l <(cni man ${word})`);
      return;
    }
    const hint = suggestion(word, pages.flatMap(namesOf)) || '; "cni man --list" names all pages';
    throw new UsageError(`there is no page "${word}"${hint}`);
  },
};
export default man;

const fileName = ({ name, section }: ManPage): string => `${name}.${section}`;

function namesOf(page: ManPage): string[] {
  const { name, section } = page;
  return [name, fileName(page), `${name}(${section})`, ...name === "cni" ? [] : [name.replace(/^cni[-.]/, "")]];
}
