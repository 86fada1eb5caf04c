/**
 * The id that cnitool makes from a namespace's path, so that either removes what the other added.
 *
 * @example
 * ```ts
 * import { containerIdOfNetns } from "./mod.ts";
 *
 * console.log(containerIdOfNetns("/var/run/netns/blue")); // cnitool-296747069b8a02dc4e2a
 * ```
 */
export function containerIdOfNetns(netns: string): string {
  // Loading the module takes a millisecond, and Deno has nothing else.
  const hash = typeof Bun === "undefined"
    ? process.getBuiltinModule("node:crypto").createHash("sha512")
    : new Bun.CryptoHasher("sha512");
  return `cnitool-${hash.update(netns).digest("hex").slice(0, 20)}`;
}
