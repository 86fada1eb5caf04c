/** Types into real shells. `cni` there prints the words that it gets, and completes as the program does. */
import { expect, test } from "bun:test";
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { useDirectory } from "../../testing/directory.ts";
import { testWith } from "../../testing/binary.ts";
import { runInTerminal } from "../../testing/terminal.ts";
import { COMPLETION_SCRIPTS, SHELLS } from "./scripts.ts";
import { shellWords } from "../../testing/shell_words.ts";

const root = useDirectory("cni-completion-");

const network = { cniVersion: "1.0.0", name: "web-net", plugins: [{ type: "bridge" }] };
mkdirSync(join(root, "conf"));
writeFileSync(join(root, "conf/web.conflist"), JSON.stringify(network));
for (const shell of SHELLS) writeFileSync(join(root, shell), COMPLETION_SCRIPTS[shell]);
writeFileSync(
  join(root, "cni"),
  `#!/bin/sh
   if [ "$1" = complete-words ]; then exec ${shellWords(process.execPath, join(import.meta.dir, "../cni.ts"))} "$@"; fi
   printf 'GOT'; printf ' <%s>' "$@"; echo\n`,
);
chmodSync(join(root, "cni"), 0o755);
const env = [`PATH=${root}:${process.env["PATH"]}`, `NETCONFPATH=${root}/conf`, "TERM=dumb", "INPUTRC=/dev/null"];

/** Each begins with a letter of its own. */
const ODD_NAMES = ["a b", "c$HOME", "d'x", 'e"x', "f:x=y", "g\\x", "h;😀*"];
const UNTYPEABLE = "i\nrun\u001b[2J";
/** A shell among network namespaces with these names. */
function amongOddNames(...shell: readonly string[]): string[] {
  const touch = 'mount -t tmpfs tmpfs /run && mkdir /run/netns && for name; do :>"/run/netns/$name"; done';
  const names = shellWords(...ODD_NAMES, UNTYPEABLE);
  return ["unshare", "-m", "sh", "-c", `set -- ${names} && ${touch} && exec ${shell.join(" ")}`];
}
const TYPED_ODD_NAMES = [
  ...ODD_NAMES.flatMap(([first]) => ["", "'", '"'].map((quote) => `cni netns exec ${quote}${first}\tx`)),
  "cni netns exec i\tx",
];
const COMPLETED_ODD_NAMES = [
  ...ODD_NAMES.flatMap((name) => Array(3).fill(`GOT <netns> <exec> <${name}> <x>`)),
  "GOT <netns> <exec> <ix>",
];

/** Tab characters ask the shell to complete. */
const TYPED = [
  "cni run ad\tweb\t--cache-d\t/nowhere",
  `cni run gc --conf-dir=${root}/co\tx`,
  "cni plugin host-l\t",
  "cni netns exec web cni ad\t",
];
const COMPLETED = [
  "GOT <run> <add> <web-net> <--cache-dir> </nowhere>",
  `GOT <run> <gc> <--conf-dir=${root}/conf/x>`,
  "GOT <plugin> <host-local>",
  "GOT <netns> <exec> <web> <cni> <ad>",
];

const completedIn = (text: string): string[] => text.split("\n").filter((line) => line.startsWith("GOT"));
const type = (...lines: readonly string[]): string => [...lines, "exit", ""].join("\n");

testWith(["bash", "script"], "bash completes what is typed", () => {
  const stdin = type(`source ${root}/bash`, ...TYPED);
  const { text } = runInTerminal(["bash", "--norc", "--noprofile", "-i"], { columns: 300, env, stdin });
  expect(completedIn(text)).toEqual(COMPLETED);
});

testWith(["zsh", "script"], "zsh completes what is typed", () => {
  const stdin = type(`autoload -U compinit; compinit -u -D; source ${root}/zsh`, ...TYPED);
  const { text } = runInTerminal(["zsh", "-f", "-i"], { columns: 300, env, stdin });
  expect(completedIn(text)).toEqual(COMPLETED);
});

testWith(["bash", "zsh", "script"], "bash and zsh complete odd names, also in quotes", () => {
  const environment = [...env, "LC_ALL=C.UTF-8"];
  const bash = runInTerminal(amongOddNames("bash", "--norc", "--noprofile", "-i"), {
    ...{ columns: 300, env: environment },
    stdin: type(`source ${root}/bash`, ...TYPED_ODD_NAMES),
  });
  expect(completedIn(bash.text)).toEqual(COMPLETED_ODD_NAMES);
  const zsh = runInTerminal(amongOddNames("zsh", "-f", "-i"), {
    ...{ columns: 300, env: environment },
    stdin: type(`autoload -U compinit; compinit -u -D; source ${root}/zsh`, ...TYPED_ODD_NAMES),
  });
  expect(completedIn(zsh.text)).toEqual(COMPLETED_ODD_NAMES);
});

testWith(["fish"], "fish offers odd names, also in quotes", () => {
  const lines = ["a", "'a", '"a', "a\\ ", "d", "i"].map((typed) =>
    `complete -C ${JSON.stringify(`cni netns exec ${typed}`)}`
  );
  const script = [`source ${root}/fish`, ...lines].join("\n");
  const words = amongOddNames("fish", "--no-config", "-c", `'${script.replaceAll("'", "'\\''")}'`);
  const { stdout } = Bun.spawnSync(["env", ...env, "LC_ALL=C.UTF-8", ...words], { cwd: root });
  expect(stdout.toString().trimEnd().split("\n")).toEqual(["a b", "a b", "a b", "a b", "d'x"]);
});

testWith(["fish"], "fish offers words with their descriptions, and paths", () => {
  const lines = [
    "cni run ad",
    "cni run add web",
    "cni run add web-net --cache-d",
    `cni run gc --conf-dir=${root}/co`,
    "cni plugin host-l",
    "cni netns exec web cni ad",
  ];
  const script = [`source ${root}/fish`, ...lines.map((line) => `complete -C '${line}'`)].join("\n");
  const { stdout } = Bun.spawnSync(["env", ...env, "fish", "--no-config", "-c", script], { cwd: root });
  expect(stdout.toString().trimEnd().split("\n").map((line) => line.trimEnd())).toEqual([
    "add\tattach a container and print the result",
    "web-net",
    "--cache-dir\tdirectory where attachments are remembered (/var/lib/cni)",
    `--conf-dir=${root}/conf/\tDirectory`,
    "host-local\tAssigns addresses from ranges that only this host uses",
  ]);
});

test("nothing is offered where the program is not there", () => {
  const { stdout, stderr } = Bun.spawnSync(["bash", "-c", `source ${root}/bash; COMP_LINE=x; _cni /nowhere`]);
  expect([stdout.toString(), stderr.toString()]).toEqual(["", ""]);
});
