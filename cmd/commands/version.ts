import { printStdout } from "../../ffi/sys/stdio.ts";
import { pluginNames } from "../../plugins/registry.ts";
import { formatDocument } from "../output/document.ts";
import { VERSIONS } from "../../spec/version.ts";
import type { Command } from "../command.ts";
import type { OptionSpec } from "../options.ts";
import { programCommit, programVersion } from "../../program/version.ts";

const JSON_OPTION: OptionSpec = { name: "json", help: "print JSON, as with --format json" };

const version: Command = {
  name: "version",
  summary: "print the version, as the option --version does",
  arguments: [],
  options: [JSON_OPTION],
  examples: [{
    command: "cni --version --json",
    about: "also the commit that a release is made of, and Bun's version",
  }],
  run({ has }) {
    if (has(JSON_OPTION.name)) return printStdout(formatDocument(versionDocument()));
    printStdout(`cni ${programVersion()}
CNI protocol versions supported: ${VERSIONS.join(", ")}
plugins: ${pluginNames().join(", ")}
`);
  },
};
export default version;

function versionDocument(): object {
  const commit = programCommit();
  return {
    version: programVersion(),
    ...commit !== undefined && { commit },
    bun: Bun.version,
    supportedVersions: VERSIONS,
    plugins: pluginNames(),
  };
}
