import { printStdout } from "../../ffi/sys/stdio.ts";
import type { Command } from "../command.ts";
import { COMPLETION_SCRIPTS, type Shell, SHELLS } from "../completion/scripts.ts";

const completion: Command = {
  name: "completion",
  summary: "print a script with which a shell completes the words of cni",
  description: "Completes commands, options, networks, namespaces, containers, plugins and their keys.",
  arguments: [{ name: "SHELL", help: "the shell: bash, zsh or fish", choices: SHELLS }],
  options: [],
  examples: [
    { command: "source <(cni completion bash)", about: "use it in this shell, bash or zsh" },
    { command: "cni completion bash >/etc/bash_completion.d/cni", about: "use it in every bash" },
    { command: "cni completion zsh >/usr/local/share/zsh/site-functions/_cni", about: "use it in every zsh" },
    { command: "cni completion fish >~/.config/fish/completions/cni.fish", about: "use it in fish" },
  ],
  run: ({ words: [shell] }) => printStdout(COMPLETION_SCRIPTS[shell as Shell]),
};
export default completion;
