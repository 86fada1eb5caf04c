import { addNamedNetns } from "../../../ffi/netns/named.ts";
import { refuseNamedNetns } from "../../arguments/netns_name.ts";
import { log } from "../../arguments/runtime.ts";
import type { Command } from "../../command.ts";
import { UsageError } from "../../../program/usage_error.ts";

const add: Command = {
  name: "add",
  summary: "make a network namespace, with its loopback interface up",
  arguments: [{ name: "NAME", help: "a new name under /run/netns" }],
  options: [],
  examples: [{ command: "cni netns add web", about: "make /run/netns/web" }],
  run({ words: [name = ""] }) {
    // Commands would take it for an option, and readers of a list for several names.
    if (/^-|\p{Cc}/u.test(name)) {
      throw new UsageError(
        `"netns add" needs a name without control characters that does not begin with "-": got ${JSON.stringify(name)}`,
      );
    }
    refuseNamedNetns(name);
    addNamedNetns(name, log);
  },
};
export default add;
