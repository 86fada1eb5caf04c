import type { Netns } from "../../../ffi/netns/netns.ts";
import * as link from "../../../ffi/route/link.ts";
import { expectEqual } from "../protocol/check_failed.ts";

export function expectLink(what: string, netns: Netns, index: number | undefined, wanted: link.Link): void {
  if (index === wanted.index) return;
  const actual = index === undefined ? undefined : link.find(netns.route, index)?.name ?? `link ${index}`;
  expectEqual(what, actual, wanted.name);
}
