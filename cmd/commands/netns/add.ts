/** `cni netns add` @module */
import { addNamedNetns } from "../../../ffi/named_netns.ts";
import type { Command } from "../../command.ts";

const add: Command = {
  name: "add",
  summary: "make a network namespace",
  arguments: [{ name: "NAME", help: "a name that is free under /run/netns" }],
  options: [],
  examples: [{ command: "cni netns add web", about: "make /run/netns/web" }],
  run: ({ words: [name = ""] }) => addNamedNetns(name),
};
export default add;
