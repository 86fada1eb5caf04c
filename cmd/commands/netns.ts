/** These are for hosts without iproute2. */
import type { CommandGroup } from "../command.ts";

const netns: CommandGroup = {
  name: "netns",
  summary: "manage named network namespaces",
  description: 'The same as those of "ip netns". Without a command, lists them.',
  commands: {
    list: () => import("./netns/list.ts"),
    add: () => import("./netns/add.ts"),
    del: () => import("./netns/del.ts"),
    exec: () => import("./netns/exec.ts"),
  },
  aliases: { ls: "list", create: "add", rm: "del", remove: "del", delete: "del" },
  defaultCommand: "list",
};
export default netns;
