import ipvlan from "./plugin.ts";
import { compareWithReference, lanHostLocalIpam } from "../../testing/lan_reference.ts";

const MASTER = { master: "up0" };

compareWithReference(ipvlan, {
  "both families": (sandbox) => ({
    config: {
      ...MASTER,
      ...lanHostLocalIpam(sandbox, { ranges: [[{ subnet: "10.5.0.0/24" }], [{ subnet: "fd05::/64" }]] }),
    },
  }),
  "l3 and a smaller MTU": (sandbox) => ({ config: { ...MASTER, mode: "l3", mtu: 1400, ...lanHostLocalIpam(sandbox) } }),
  "an address, routes and dns": (sandbox) => ({
    config: { ...MASTER, dns: { nameservers: ["192.0.2.53"] }, ...lanHostLocalIpam(sandbox) },
  }),
  "no IPAM": () => ({ config: MASTER }),
  "a master that does not exist": (sandbox) => ({ config: { master: "nosuch", ...lanHostLocalIpam(sandbox) } }),
  "an unknown mode": (sandbox) => ({ config: { ...MASTER, mode: "bridge", ...lanHostLocalIpam(sandbox) } }),
});
