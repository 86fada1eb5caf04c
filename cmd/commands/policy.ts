import type { CommandGroup } from "../command.ts";

const policy: CommandGroup = {
  name: "policy",
  summary: "tell what NetworkPolicy makes of traffic",
  commands: {
    test: () => import("./policy/test.ts"),
  },
};
export default policy;
