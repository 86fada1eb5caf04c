import type { Netns } from "../ffi/netns/netns.ts";
import type { HostContext } from "../plugins/lib/protocol/context.ts";
import { handle } from "../plugins/lib/protocol/handle.ts";

export interface HeldNetnsContext extends HostContext, Disposable {
  /** Programs open namespaces anew, by path. */
  readonly hasRunProgram: boolean;
}

/**
 * Opens each namespace once per command, until the scope ends. Use it under the container's lock: before, another
 * namespace may come to the path.
 */
export function holdNetns(context: HostContext): HeldNetnsContext {
  const opened = new Map<string, Netns>();
  let hasRunProgram = false;
  const held: HeldNetnsContext = {
    ...context,
    get hasRunProgram() {
      return hasRunProgram;
    },
    openNetns(path) {
      const netns = opened.get(path) ?? context.openNetns(path);
      opened.set(path, netns);
      return lend(netns);
    },
    invoke(location, request) {
      if ("plugin" in location) return handle(location.plugin, request, held);
      hasRunProgram = true;
      return context.invoke(location, request);
    },
    [Symbol.dispose]() {
      for (const netns of opened.values()) netns[Symbol.dispose]();
    },
  };
  return held;
}

/** The borrower must not close it. */
function lend(netns: Netns): Netns {
  return Object.create(netns, { [Symbol.dispose]: { value() {} } });
}
