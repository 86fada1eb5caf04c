import type { Netns } from "../../ffi/netns/netns.ts";
import { vrf as vrfKind } from "../../ffi/route/link_kinds.ts";
import * as link from "../../ffi/route/link.ts";
import * as rule from "../../ffi/route/rule.ts";
import { IFF_UP } from "../../ffi/route/uapi.ts";
import * as rawRoute from "../../ffi/route/raw_route.ts";
import { addContainerLink } from "../lib/links/container_link.ts";
import { freeTableIds } from "../lib/links/routes.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { VrfConfig } from "./config.ts";

export function ensureVrf(netns: Netns, { vrfname, table }: VrfConfig, undo: DisposableStack): link.Link {
  const existing = link.find(netns.route, vrfname);
  if (existing) return reuseVrf(netns, existing, table);
  const info = vrfKind({ table: table || chooseTable(netns) });
  return addContainerLink(netns, { name: vrfname, flags: IFF_UP, change: IFF_UP, info }, undo);
}

function reuseVrf(netns: Netns, existing: link.Link, table: number): link.Link {
  const kind = vrfKind.of(existing);
  if (!kind) {
    throw new CniError(
      Code.InvalidConfig,
      `Cannot use "${existing.name}" as a VRF: it is an interface of another kind (${existing.info?.kind ?? "device"})`,
      { details: 'choose another name for "vrfname"' },
    );
  }
  if (table !== 0 && kind.table !== table) {
    throw new CniError(
      Code.InvalidConfig,
      `Cannot use VRF "${existing.name}" with table ${table}: it exists and has table ${kind.table}`,
      { details: 'give that "table", or none, or another "vrfname"' },
    );
  }
  if (!link.isUp(existing)) link.setUp(netns.route, existing.index);
  return existing;
}

function chooseTable(netns: Netns): number {
  const usedTables = new Set(link.list(netns.route).map((device) => vrfKind.of(device)?.table));
  const candidates = freeTableIds(1, rule.list(netns.route), rawRoute.list(netns.route));
  for (;;) {
    const { value } = candidates.next();
    if (!usedTables.has(value)) return value;
  }
}
