import { compareWithReference, lanHostLocalIpam } from "../../testing/lan_reference.ts";
import macvlan from "./plugin.ts";

const MASTER = { master: "up0" };

compareWithReference(macvlan, {
  "an address and routes": (sandbox) => ({ config: { ...MASTER, ...lanHostLocalIpam(sandbox) } }),
  "both families": (sandbox) => ({
    config: {
      ...MASTER,
      ...lanHostLocalIpam(sandbox, { ranges: [[{ subnet: "10.5.0.0/24" }], [{ subnet: "fd05::/64" }]] }),
    },
  }),
  "no IPAM": () => ({ config: MASTER }),
  "private": (sandbox) => ({ config: { ...MASTER, mode: "private", ...lanHostLocalIpam(sandbox) } }),
  "vepa and a smaller MTU": (sandbox) => ({
    config: { ...MASTER, mode: "vepa", mtu: 1400, ...lanHostLocalIpam(sandbox) },
  }),
  "passthru": (sandbox) => ({ config: { ...MASTER, mode: "passthru", ...lanHostLocalIpam(sandbox) } }),
  "a MAC address of the configuration": () => ({ config: { ...MASTER, mac: "0a:00:00:00:00:07" } }),
  "a MAC address of CNI_ARGS": () => ({
    config: { ...MASTER, mac: "0a:00:00:00:00:07" },
    env: { CNI_ARGS: "IgnoreUnknown=1;MAC=0a:00:00:00:00:08" },
  }),
  "a MAC address of the runtime": () => ({
    config: { ...MASTER, runtimeConfig: { mac: "0a:00:00:00:00:09" } },
    env: { CNI_ARGS: "MAC=0a:00:00:00:00:08" },
  }),
  "the master of the default route": (sandbox) => ({ config: lanHostLocalIpam(sandbox) }),
  "conf dns": (sandbox) => ({
    config: { ...MASTER, dns: { nameservers: ["192.0.2.53"] }, ...lanHostLocalIpam(sandbox) },
  }),
  "a master that does not exist": () => ({ config: { master: "nosuch" } }),
  "an MTU above the master's": () => ({ config: { ...MASTER, mtu: 1501 } }),
  "an unknown mode": () => ({ config: { ...MASTER, mode: "l2" } }),
});
