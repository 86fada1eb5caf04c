/**
 * `cni netns`: named network namespaces, for hosts without iproute2.
 *
 * @module
 */
import { addNamedNetns, execInNamedNetns, listNamedNetns, removeNamedNetns } from "../../ffi/named_netns.ts";
import { UsageError } from "../options.ts";
import { printStderr, printStdout } from "../../ffi/sys/stdio.ts";
import { suggestion } from "../../spec/suggest.ts";

const NETNS_COMMANDS: Readonly<Record<string, (words: readonly string[]) => void>> = {
  add: (words) => addNamedNetns(singleName("add", words)),
  del: (words) => removeNamedNetns(singleName("del", words)),
  delete: (words) => removeNamedNetns(singleName("delete", words)),
  list: ([surplus]) => {
    if (surplus !== undefined) throw new UsageError(`"netns list" takes no argument: got "${surplus}"`);
    for (const name of listNamedNetns()) printStdout(`${name}\n`);
  },
  exec: ([name, ...command]) => {
    const [program, ...rest] = command[0] === "--" ? command.slice(1) : command;
    if (name === undefined || program === undefined) {
      throw new UsageError('"netns exec" needs a name and a command');
    }
    execInNamedNetns(name, [program, ...rest], (message) => printStderr(`cni: ${message}`));
  },
};

/**
 * Carries out `cni netns …`. The words of `exec` are the program's, options included.
 *
 * @throws {UsageError} if it cannot be understood
 * @throws {SystemError} what the kernel refused
 */
export function netns([verb = "list", ...words]: readonly string[]): void {
  const command = Object.hasOwn(NETNS_COMMANDS, verb) ? NETNS_COMMANDS[verb] : undefined;
  if (!command) {
    throw new UsageError(`unknown command "netns ${verb}"${suggestion(verb, Object.keys(NETNS_COMMANDS))}`);
  }
  command(words);
}

function singleName(verb: string, words: readonly string[]): string {
  const [name, ...surplus] = words;
  if (name === undefined || name.startsWith("-")) throw new UsageError(`"netns ${verb}" needs a name`);
  if (surplus.length > 0) throw new UsageError(`"netns ${verb}" takes one name: got "${words.join(" ")}"`);
  return name;
}
