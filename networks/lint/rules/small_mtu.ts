import { findKey } from "../../../spec/schema.ts";
import { pathIn } from "../written_plugin.ts";
import type { LintRule } from "../rule.ts";

// linux/if_ether.h ETH_MIN_MTU
const MIN_MTU = 68;
/** Those whose ADD certainly fails. A VLAN, for example, has no minimum. */
const PLUGINS = ["bridge", "ptp", "macvlan", "tap", "tuning"];

export const smallMtuRule: LintRule = {
  name: "small-mtu",
  severity: "error",
  about: "An MTU below 68 bytes. The kernel refuses it.",
  bad: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{ "type": "bridge", "mtu": 14 }]
}`,
    },
    finds: ["10-web.conflist:4:42 the kernel refuses an MTU below 68: got 14"],
  },
  good: {
    files: {
      "10-web.conflist": `{
  "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"],
  "name": "web",
  "plugins": [{ "type": "bridge", "mtu": 1400 }]
}`,
    },
  },
  find: ({ plugins }) =>
    plugins.filter(({ type }) => PLUGINS.includes(type)).flatMap((plugin) => {
      const key = findKey(plugin.raw, "mtu") ?? "mtu";
      const mtu = plugin.raw[key];
      // 0 is the default.
      if (typeof mtu !== "number" || !Number.isInteger(mtu) || mtu <= 0 || mtu >= MIN_MTU) return [];
      const message = `the kernel refuses an MTU below ${MIN_MTU}: got ${mtu}`;
      return [{
        source: plugin.source,
        path: pathIn(plugin, key),
        message,
        suggestion: "leave out the key, or write 1500",
      }];
    }),
};
