import { PLUGIN_CALL_OPTIONS } from "../arguments/network.ts";
import type { CommandGroup } from "../command.ts";

const network: CommandGroup = {
  name: "network",
  summary: "create, show and remove networks",
  description:
    'As "podman network" and "nerdctl network". Without a command, lists them. Every command accepts the options below.',
  commands: {
    create: () => import("./network/create.ts"),
    ls: () => import("./network/ls.ts"),
    inspect: () => import("./network/inspect.ts"),
    rm: () => import("./network/rm.ts"),
    prune: () => import("./network/prune.ts"),
  },
  aliases: { list: "ls", add: "create", del: "rm", remove: "rm", delete: "rm" },
  defaultCommand: "ls",
  options: PLUGIN_CALL_OPTIONS,
};
export default network;
