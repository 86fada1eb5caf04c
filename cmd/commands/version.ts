import { printStdout } from "../../ffi/sys/stdio.ts";
import { pluginNames } from "../../plugins/registry.ts";
import { VERSIONS } from "../../spec/version.ts";
import type { Command } from "../command.ts";
import { programVersion } from "../version.ts";

const version: Command = {
  name: "version",
  summary: "print the version, as the option --version does",
  arguments: [],
  options: [],
  run: () => {
    printStdout(`cni ${programVersion()}
CNI protocol versions supported: ${VERSIONS.join(", ")}
plugins: ${pluginNames().join(", ")}
`);
  },
};
export default version;
