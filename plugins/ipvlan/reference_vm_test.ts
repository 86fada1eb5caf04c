import ipvlan from "./plugin.ts";
import { compareWithReference, reserving } from "../../testing/lan_reference.ts";

const MASTER = { master: "up0" };

compareWithReference(ipvlan, {
  "both families": (sandbox) => ({
    config: { ...MASTER, ...reserving(sandbox, { ranges: [[{ subnet: "10.5.0.0/24" }], [{ subnet: "fd05::/64" }]] }) },
  }),
  "l3 and a smaller MTU": (sandbox) => ({ config: { ...MASTER, mode: "l3", mtu: 1400, ...reserving(sandbox) } }),
  "an address, routes and dns": (sandbox) => ({
    config: { ...MASTER, dns: { nameservers: ["192.0.2.53"] }, ...reserving(sandbox) },
  }),
  "no IPAM": () => ({ config: MASTER }),
  "a master that does not exist": (sandbox) => ({ config: { master: "nosuch", ...reserving(sandbox) } }),
  "an unknown mode": (sandbox) => ({ config: { ...MASTER, mode: "bridge", ...reserving(sandbox) } }),
});
