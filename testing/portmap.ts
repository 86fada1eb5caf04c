/**
 * What the tests of the `portmap` plugin have in common.
 *
 * @module
 */

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
