/**
 * A host of the test's own on which the runtime works in this process, and what that asks of the kernel is counted.
 *
 * @module
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createNetns, type Netns, openNetns } from "../ffi/netns.ts";
import { counting, type Tally } from "./netlink_counts.ts";
import { embedded, type Surroundings } from "../plugins/lib/protocol/serve.ts";
import { findPlugin } from "../plugins/registry.ts";
import type { RuntimeOptions } from "../runtime/operations.ts";

export interface CountedHost {
  readonly host: Netns;
  /** For state, removed with the host. */
  readonly directory: string;
  /** What was said on stderr. */
  readonly log: readonly string[];
  /** What plugins are called with: sockets that count. */
  readonly surroundings: Surroundings;
  readonly runtime: RuntimeOptions;
  /** Runs a call on the host. @returns what it asked of the kernel */
  measure(call: () => void): Tally;
}

/** A host without anything. */
export function newCountedHost(resources: DisposableStack): CountedHost {
  const directory = mkdtempSync(join(tmpdir(), "cni-cost-"));
  resources.defer(() => rmSync(directory, { recursive: true }));
  const log: string[] = [];
  const nothing = { sends: 0, messages: 0, dumps: 0, received: 0 };
  const tally: Tally = { ...nothing };
  const host = resources.use(createNetns());
  const surroundings: Surroundings = {
    host: counting(host, tally),
    openNetns: (path) => counting(openNetns(path), tally),
    invoker: () => invoker,
    log: (message) => void log.push(message),
  };
  const invoker = embedded(findPlugin, surroundings);
  const cacheDirectory = join(directory, "cache");
  return {
    host,
    directory,
    log,
    surroundings,
    runtime: { invoker, pluginDirectories: [], cacheDirectory, env: {}, log: surroundings.log },
    measure(call) {
      Object.assign(tally, nothing);
      host.run(call);
      return { ...tally };
    },
  };
}
