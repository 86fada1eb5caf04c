/** Man pages and completions, as the program prints them. @module */
import { runSuccessfully } from "../harness/process.ts";
import type { Documentation } from "./debian.ts";

const COMPLETIONS = {
  bash: "bash-completion/completions/cni",
  zsh: "zsh/vendor-completions/_cni",
  fish: "fish/vendor_completions.d/cni.fish",
} as const;

/** @param program one that runs here @returns texts by their paths below /usr/share */
export function programDocumentation(program: string): Documentation {
  const print = (...words: readonly string[]): string => runSuccessfully({ argv: [program, ...words] }).stdout;
  const pages = print("man", "--list").trim().split("\n");
  return {
    ...Object.fromEntries(pages.map((page) => [`man/man${page.split(".").at(-1)}/${page}`, print("man", page)])),
    ...Object.fromEntries(Object.entries(COMPLETIONS).map(([shell, path]) => [path, print("completion", shell)])),
  };
}
