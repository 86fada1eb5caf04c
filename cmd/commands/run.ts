import { ATTACHMENT_OPTIONS } from "../arguments/attachment.ts";
import { RUNTIME_OPTIONS } from "../arguments/runtime.ts";
import type { CommandGroup } from "../command.ts";

const run: CommandGroup = {
  name: "run",
  summary: "attach containers to networks, check and detach them",
  description:
    `Scripts for cnitool work with "cni run" in its place. Every command accepts the options below, and ignores those
that it does not need.`,
  commands: {
    add: () => import("./run/add.ts"),
    check: () => import("./run/check.ts"),
    del: () => import("./run/del.ts"),
    gc: () => import("./run/gc.ts"),
    status: () => import("./run/status.ts"),
    restore: () => import("./run/restore.ts"),
    list: () => import("./run/list.ts"),
    derive: () => import("./run/derive.ts"),
  },
  aliases: { ls: "list", rm: "del", remove: "del", delete: "del" },
  options: [...RUNTIME_OPTIONS, ...ATTACHMENT_OPTIONS],
  ignoresSurplus: true,
};
export default run;
