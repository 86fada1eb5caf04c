/**
 * What the tests of the `portmap` plugin have in common.
 *
 * @module
 */
import { serveTcp, serveUdp } from "./traffic.ts";
import type { BridgeContainer } from "./bridge_network.ts";

export interface TestPortMapping {
  hostPort: number;
  containerPort: number;
  protocol?: string;
  hostIP?: string;
}
export const portMappingConfig = (mappings: readonly TestPortMapping[], more: object = {}) => ({
  runtimeConfig: { portMappings: mappings },
  ...more,
});
export const WEB_PORT_MAPPINGS = portMappingConfig([{ hostPort: 8080, containerPort: 80, protocol: "tcp" }, {
  hostPort: 5353,
  containerPort: 53,
  protocol: "udp",
}]);

/** Serves TCP port 80 and UDP port 53 in a container. */
export async function startServers(container: BridgeContainer, name: string): Promise<DisposableStack> {
  const stack = new DisposableStack();
  stack.use(serveTcp(container.netns, name, 80));
  stack.use(await serveUdp(container.netns, name, 53));
  return stack;
}
