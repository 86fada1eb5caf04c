import { vrf as vrfKind } from "../../ffi/route/link_kinds.ts";
import type { Link } from "../../ffi/route/link.ts";
import { checkWanted } from "../lib/links/wanted_differences.ts";
import type { Wanted } from "../lib/model/wanted.ts";
import type { CheckCall } from "../lib/protocol/plugin.ts";
import type { VrfConfig } from "./config.ts";

/** @throws {CniError} on the first difference */
export function checkVrf(call: CheckCall<VrfConfig>): void {
  checkWanted(call, vrfWanted(call.config, call.ifname));
}

export function vrfWanted({ vrfname, table }: VrfConfig, ifname: string): Wanted {
  const tableSetting = { name: "table", value: table, read: (device: Link) => vrfKind.of(device)?.table };
  return {
    links: [
      { place: "container", name: vrfname, kind: "vrf", settings: table === 0 ? [] : [tableSetting] },
      { place: "container", name: ifname, master: vrfname, mayBeDown: true },
    ],
  };
}
