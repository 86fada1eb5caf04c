import { execInNamedNetns } from "../../../ffi/netns/named.ts";
import { requireNamedNetns } from "../../arguments/netns_name.ts";
import { log } from "../../arguments/runtime.ts";
import type { Command } from "../../command.ts";

const exec: Command = {
  name: "exec",
  summary: "run a program in a network namespace",
  arguments: [
    { name: "NAME", help: "a name under /run/netns", completion: "netns" },
    { name: "COMMAND", help: "a program and its arguments", completion: "file", repeated: true },
  ],
  options: [],
  examples: [{ command: "cni netns exec web ip address", about: 'print the addresses of the namespace "web"' }],
  run({ words: [name = "", program = "", ...rest] }) {
    requireNamedNetns(name);
    execInNamedNetns(name, [program, ...rest], log);
  },
};
export default exec;
