import { compareWithReference, lanHostLocalIpam } from "../../testing/lan_reference.ts";
import vlan from "./plugin.ts";

const FIVE = { master: "up0", vlanId: 5 };

compareWithReference(vlan, {
  "both families": (sandbox) => ({
    config: {
      ...FIVE,
      ...lanHostLocalIpam(sandbox, { ranges: [[{ subnet: "10.5.0.0/24" }], [{ subnet: "fd05::/64" }]] }),
    },
  }),
  "VLAN 4094 and a smaller MTU": (sandbox) => ({
    config: { ...FIVE, vlanId: 4094, mtu: 1400, ...lanHostLocalIpam(sandbox) },
  }),
  "no VLAN": (sandbox) => ({ config: { master: "up0", ...lanHostLocalIpam(sandbox) } }),
  "an address, routes and dns": (sandbox) => ({
    config: { ...FIVE, dns: { nameservers: ["192.0.2.53"] }, ...lanHostLocalIpam(sandbox) },
  }),
  "a master that does not exist": (sandbox) => ({
    config: { ...FIVE, master: "nosuch", ...lanHostLocalIpam(sandbox) },
  }),
  "no master": (sandbox) => ({ config: { vlanId: 5, ...lanHostLocalIpam(sandbox) } }),
  "VLAN 4095": (sandbox) => ({ config: { ...FIVE, vlanId: 4095, ...lanHostLocalIpam(sandbox) } }),
  "an MTU above the master's": (sandbox) => ({ config: { ...FIVE, mtu: 1501, ...lanHostLocalIpam(sandbox) } }),
});
