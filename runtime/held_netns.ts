/** Opening the container's namespace once for a command, however many plugins work in it. */
import type { Netns } from "../ffi/netns.ts";
import type { HostContext } from "../plugins/lib/protocol/context.ts";
import { handle } from "../plugins/lib/protocol/handle.ts";

/** The machine as one command sees it. */
export interface HeldNetnsContext extends HostContext, Disposable {
  /** Whether a program was called, which opens namespaces anew. */
  readonly hasRunProgram: boolean;
}

/**
 * Each namespace stays open until the scope ends, and is opened once. To be used under the container's lock: before, another namespace may
 * come to the path.
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

/** A handle whose close does nothing. */
function lend(netns: Netns): Netns {
  return Object.create(netns, { [Symbol.dispose]: { value() {} } });
}
