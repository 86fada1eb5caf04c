/**
 * An IPAM plugin for tests: it says what its configuration tells it to, and counts what it is asked.
 *
 * @module
 */
import { CniError } from "../spec/error.ts";
import type { Result } from "../spec/result.ts";
import { anything } from "../spec/schema.ts";
import { plugin } from "../plugins/lib/protocol/plugin.ts";
import type { AnyPlugin } from "../plugins/lib/protocol/context.ts";

/** How often each command was called. */
export type IpamCallCounts = { [Command in "add" | "del" | "check" | "gc" | "status"]: number };

/** What `ipam` of the configuration holds. */
export interface FixedIpam {
  readonly type: "fixed";
  /** What the plugin answers to ADD. */
  readonly result: Result;
  /** ADD fails with code 11. */
  readonly fail?: boolean;
}

/** The plugin `fixed`, with counts of its own. */
export function newFixedIpam(): { readonly fixed: AnyPlugin; readonly counts: IpamCallCounts } {
  const counts = { add: 0, del: 0, check: 0, gc: 0, status: 0 };
  const fixed = plugin({
    name: "fixed",
    about: "Gives the addresses in its configuration",
    config: anything,
    add({ config }) {
      counts.add++;
      const { fail, result } = (config as { ipam: FixedIpam }).ipam;
      if (fail) throw new CniError(11, "no address now");
      return result;
    },
    del: () => void counts.del++,
    check: () => void counts.check++,
    gc: () => void counts.gc++,
    status: () => void counts.status++,
  });
  return { fixed, counts };
}
