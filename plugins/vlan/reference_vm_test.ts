import { compareWithReference, reserving } from "../../testing/lan_reference.ts";
import vlan from "./plugin.ts";

const FIVE = { master: "up0", vlanId: 5 };

compareWithReference(vlan, {
  "both families": (sandbox) => ({
    config: { ...FIVE, ...reserving(sandbox, { ranges: [[{ subnet: "10.5.0.0/24" }], [{ subnet: "fd05::/64" }]] }) },
  }),
  "VLAN 4094 and a smaller MTU": (sandbox) => ({
    config: { ...FIVE, vlanId: 4094, mtu: 1400, ...reserving(sandbox) },
  }),
  "no VLAN": (sandbox) => ({ config: { master: "up0", ...reserving(sandbox) } }),
  "an address, routes and dns": (sandbox) => ({
    config: { ...FIVE, dns: { nameservers: ["192.0.2.53"] }, ...reserving(sandbox) },
  }),
  "a master that does not exist": (sandbox) => ({ config: { ...FIVE, master: "nosuch", ...reserving(sandbox) } }),
  "no master": (sandbox) => ({ config: { vlanId: 5, ...reserving(sandbox) } }),
  "VLAN 4095": (sandbox) => ({ config: { ...FIVE, vlanId: 4095, ...reserving(sandbox) } }),
  "an MTU above the master's": (sandbox) => ({ config: { ...FIVE, mtu: 1501, ...reserving(sandbox) } }),
});
