import type { AnyMessageSpec, Operation } from "../netlink/message.ts";

/** rtnetlink numbers the types of one object from `first` on. @see linux/rtnetlink.h */
export function rtnetlinkOperations<S extends AnyMessageSpec>(
  kind: string,
  first: number,
  spec: S,
): Readonly<Record<"NEW" | "DEL" | "GET" | "SET", Operation<S>>> {
  const operation = (verb: string, offset: number) => ({ name: `RTM_${verb}${kind}`, type: first + offset, spec });
  return { NEW: operation("NEW", 0), DEL: operation("DEL", 1), GET: operation("GET", 2), SET: operation("SET", 3) };
}
