import { interceptSystemCalls } from "../../ffi/sys/intercept.ts";
import { AF_UNIX } from "../../ffi/sys/uapi.ts";
import { CniError, Code } from "../../spec/error.ts";

/**
 * Until the scope ends, forbids connections to other programs, which would carry out what they are asked for.
 *
 * @param isQuery whether what connects is known to change nothing there
 */
export function forbidConnections(isQuery: () => boolean): Disposable {
  return interceptSystemCalls(["connect"], (_, args, call) => {
    const path = socketPathOf(args[1] as Uint8Array);
    if (path === undefined || isQuery()) return call(...args);
    throw new CniError(Code.NotAvailable, `Cannot ask the program at "${path}" in a dry run`, {
      details: "nobody knows what it would change",
    });
  });
}

function socketPathOf(address: Uint8Array): string | undefined {
  const [family, , ...name] = address;
  if (family !== AF_UNIX) return undefined;
  // The name of an abstract socket begins with a NUL.
  return new TextDecoder().decode(Uint8Array.from(name)).replace(/^\0/, "@").replace(/\0$/, "");
}
