/**
 * A host of the test's own on which the runtime works in this process, and what that asks of the kernel is counted.
 *
 * @module
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Netns, openNetns } from "../ffi/netns/netns.ts";
import { newNetns } from "./netns.ts";
import { countingNetns, type NetlinkCounts } from "./netlink_counts.ts";
import type { HostContext } from "../plugins/lib/protocol/context.ts";
import { newHostContext, newRuntimeContext } from "./plugin_call.ts";
import { findPlugin } from "../plugins/registry.ts";
import type { RuntimeContext } from "../runtime/context.ts";

/** A host whose messages to the kernel are counted. */
export interface CountingHost {
  readonly host: Netns;
  /** For state, removed with the host. */
  readonly directory: string;
  /** The lines that plugins and the runtime logged. */
  readonly log: readonly string[];
  /** The context of plugins: its sockets count. */
  readonly context: HostContext;
  readonly runtime: RuntimeContext;
  /** Runs a call on the host. @returns what it asked of the kernel */
  measure(call: () => void): NetlinkCounts;
}

/** Makes a host without anything, which goes with `resources`. */
export function newCountingHost(resources: DisposableStack): CountingHost {
  const directory = mkdtempSync(join(tmpdir(), "cni-cost-"));
  resources.defer(() => rmSync(directory, { recursive: true }));
  const log: string[] = [];
  const zero = { sends: 0, messages: 0, dumps: 0, received: 0 };
  const counts: NetlinkCounts = { ...zero };
  const host = resources.use(newNetns());
  const context = newHostContext({
    host: countingNetns(host, counts),
    openNetns: (path) => countingNetns(openNetns(path), counts),
    findPlugin,
    log,
  });
  const cacheDirectory = join(directory, "cache");
  return {
    host,
    directory,
    log,
    context,
    runtime: { ...newRuntimeContext({ cacheDirectory, log }), hostContext: context },
    measure(call) {
      Object.assign(counts, zero);
      host.run(call);
      return { ...counts };
    },
  };
}
