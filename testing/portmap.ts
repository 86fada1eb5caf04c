/**
 * Configurations for the tests of the `portmap` plugin.
 *
 * @module
 */

/** A published port, as it stands in `runtimeConfig.portMappings`. */
export interface TestPortMapping {
  hostPort: number;
  containerPort: number;
  protocol?: string;
  hostIP?: string;
}
/** A configuration that publishes these ports, with further keys. */
export const portMappingConfig = (mappings: readonly TestPortMapping[], more: object = {}) => ({
  runtimeConfig: { portMappings: mappings },
  ...more,
});
/** TCP 8080 to the container's port 80, UDP 5353 to its port 53. */
export const WEB_PORT_MAPPINGS = portMappingConfig([{ hostPort: 8080, containerPort: 80, protocol: "tcp" }, {
  hostPort: 5353,
  containerPort: 53,
  protocol: "udp",
}]);
