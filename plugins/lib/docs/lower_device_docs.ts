/** The documentation of the keys of plugins whose link stands on another: macvlan, ipvlan, vlan. @module */
import type { KeyDocs } from "./plugin_docs.ts";

/** The keys are paths. `master` is left out, since it differs. */
export function lowerDeviceDocs(tests: readonly string[]): Readonly<Record<string, KeyDocs>> {
  return {
    mtu: {
      type: "number of bytes, at most the master's MTU",
      default: "0, that of the master",
      meaning: "Sets the MTU of the container's interface.",
      example: 1400,
      tests,
    },
    linkInContainer: {
      type: "boolean",
      default: "false",
      meaning: "Looks for `master` in the container instead of on the host.",
      example: true,
      tests,
    },
  };
}
