/**
 * The VRF itself, and the number of its table.
 *
 * @module
 */
import type { Netns } from "../../ffi/netns.ts";
import { vrf as vrfKind } from "../../ffi/route/link_kinds.ts";
import * as link from "../../ffi/route/link.ts";
import * as rule from "../../ffi/route/rule.ts";
import { IFF_UP } from "../../ffi/route/uapi.ts";
import * as whole from "../../ffi/route/raw_route.ts";
import { addLink } from "../lib/links/container_link.ts";
import { freeTables } from "../lib/links/routes.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { VrfConfig } from "./config.ts";

/** The container's VRF of the configuration, created if there is none. @throws {CniError} if the name belongs to something else */
export function ensureVrf(netns: Netns, { vrfname, table }: VrfConfig, undo: DisposableStack): link.Link {
  const found = link.find(netns.route, vrfname);
  if (found) return adopt(netns, found, table);
  const info = vrfKind({ table: table || chooseTable(netns) });
  return addLink(netns, { name: vrfname, flags: IFF_UP, change: IFF_UP, info }, undo);
}

function adopt(netns: Netns, found: link.Link, table: number): link.Link {
  const kind = vrfKind.of(found);
  if (!kind) {
    throw new CniError(
      Code.InvalidConfig,
      `Cannot use "${found.name}" as a VRF: it is an interface of another kind (${found.info?.kind ?? "device"})`,
      { details: 'choose another name for "vrfname"' },
    );
  }
  if (table !== 0 && kind.table !== table) {
    throw new CniError(
      Code.InvalidConfig,
      `Cannot use VRF "${found.name}" with table ${table}: it exists and has table ${kind.table}`,
      { details: 'give that "table", or none, or another "vrfname"' },
    );
  }
  if (!link.isUp(found)) link.setUp(netns.route, found.index);
  return found;
}

/** The lowest number of a table that no VRF has, no rule names, that holds nothing and is not the system's. */
function chooseTable(netns: Netns): number {
  const taken = new Set(link.list(netns.route).map((each) => vrfKind.of(each)?.table));
  const free = freeTables(1, rule.list(netns.route), whole.list(netns.route));
  for (;;) {
    const { value } = free.next();
    if (!taken.has(value)) return value;
  }
}
