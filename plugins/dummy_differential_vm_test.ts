import dummy from "./dummy.ts";
import { compareWithReference, reserving } from "./kit/testing_segment_reference.ts";

compareWithReference(dummy, {
  "both families": (sandbox) => ({
    config: reserving(sandbox, { ranges: [[{ subnet: "10.5.0.0/24" }], [{ subnet: "fd05::/64" }]] }),
  }),
  // But for dns, which the reference's dummy alone of them drops.
  "an address and routes": (sandbox) => ({ config: reserving(sandbox) }),
  "a gateway that cannot be reached": (sandbox) => ({
    config: reserving(sandbox, { routes: [{ dst: "10.9.0.0/16", gw: "192.0.2.9" }] }),
  }),
  "no IPAM": () => ({ config: {} }),
  "keys of others": (sandbox) => ({ config: { master: "nosuch", mtu: 1400, mode: "l3", ...reserving(sandbox) } }),
});
