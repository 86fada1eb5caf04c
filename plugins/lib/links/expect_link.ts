/**
 * What CHECK says of a link's index: names, not numbers.
 *
 * @module
 */
import type { Netns } from "../../../ffi/netns.ts";
import * as link from "../../../ffi/route/link.ts";
import { expectEqual } from "../protocol/check_failed.ts";

/** Checks that an attribute leads to the link that it should, by its index. @throws {CniError} with the names of both */
export function expectLink(what: string, netns: Netns, index: number | undefined, wanted: link.Link): void {
  if (index === wanted.index) return;
  const actual = index === undefined ? undefined : link.find(netns.route, index)?.name ?? `link ${index}`;
  expectEqual(what, actual, wanted.name);
}
