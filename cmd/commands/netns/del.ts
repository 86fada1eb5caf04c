import { removeNamedNetns } from "../../../ffi/netns/named.ts";
import { requireNamedNetns } from "../../arguments/netns_name.ts";
import type { Command } from "../../command.ts";

const del: Command = {
  name: "del",
  summary: "remove the name of a network namespace",
  description: "The namespace itself ends with the last process in it.",
  arguments: [{ name: "NAME", help: "a name under /run/netns", completion: "netns" }],
  options: [],
  examples: [{ command: "cni netns del web", about: "remove /run/netns/web" }],
  run({ words: [name = ""] }) {
    requireNamedNetns(name);
    removeNamedNetns(name);
  },
};
export default del;
