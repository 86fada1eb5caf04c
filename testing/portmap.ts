/**
 * What the tests of the `portmap` plugin have in common.
 *
 * @module
 */
import type { Netns } from "../ffi/netns.ts";
import { inNetns } from "./netns.ts";
import { serveTcp, serveUdp } from "./traffic.ts";
import type { TestContainer } from "./bridge_network.ts";
import { CniError } from "../spec/error.ts";

export interface Mapping {
  hostPort: number;
  containerPort: number;
  protocol?: string;
  hostIP?: string;
}
export const publishing = (mappings: readonly Mapping[], more: object = {}) => ({
  runtimeConfig: { portMappings: mappings },
  ...more,
});
export const WEB = publishing([{ hostPort: 8080, containerPort: 80, protocol: "tcp" }, {
  hostPort: 5353,
  containerPort: 53,
  protocol: "udp",
}]);

/** Serves TCP port 80 and UDP port 53 in a container. */
export async function servers(container: TestContainer, name: string): Promise<DisposableStack> {
  const stack = new DisposableStack();
  stack.use(serveTcp(container.netns, name, 80));
  stack.use(await serveUdp(container.netns, name, 53));
  return stack;
}

export const listing = (host: Netns): string => inNetns(host, "nft", "list", "ruleset");
/** The elements that there are, in the words of nft(8), as `map: element`. */
export function elements(host: Netns): string[] {
  return [...listing(host).matchAll(/map (\S+) \{[^}]*?elements = \{ ([^}]*) \}/g)].flatMap(([, map, all]) =>
    all!.split(/,\s*/).map((each) => `${map}: ${each}`)
  ).sort();
}
export const chains = (host: Netns): string[] =>
  [...listing(host).matchAll(/chain (\S*-\S+)/g)].map(([, name]) => name!);

export function refusal(call: () => unknown): CniError {
  try {
    call();
  } catch (error) {
    if (error instanceof CniError) return error;
    throw error;
  }
  throw new Error("the call succeeded");
}
